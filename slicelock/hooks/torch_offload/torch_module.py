"""PyTorch, when it is needed and not before."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from slicelock.errors import ConfigurationError


def load_torch() -> Any:
    """The module `torch`; ConfigurationError when it is not installed."""
    try:
        return import_module("torch")
    except ImportError as missing:
        raise ConfigurationError(
            f"PyTorch cannot be imported ({missing}), so there is nothing to offload.",
            advice="Install torch in the job's environment, or register a hook of your own.",
        ) from None
