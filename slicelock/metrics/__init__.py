"""Metrics for Prometheus: of a whole pool (`slicelock exporter`), and what agents serve theirs with.

Needs the package `prometheus-client` (`pip install 'slicelock[metrics]'`), which nothing else imports.
"""

from __future__ import annotations

from importlib.util import find_spec

from slicelock.errors import ConfigurationError


def check_installed() -> None:
    """ConfigurationError, with the remedy, when `prometheus-client` is missing."""
    if find_spec("prometheus_client") is None:
        raise ConfigurationError(
            "Metrics need the package 'prometheus-client'.", advice="Run: pip install 'slicelock[metrics]'"
        )
