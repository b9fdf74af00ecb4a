"""The hook for a vLLM engine in this process: `LLM`, or `AsyncLLM` on its own event loop."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import TimeoutError as Overdue
from importlib import import_module
from typing import Any, TypeVar

from slicelock.errors import ConfigurationError, RestoreFailed, SlicelockError, SnapshotFailed
from slicelock.hooks.moved import Moved
from slicelock.hooks.server import GIB, RESIDUE_GIB, UNDO_S, called, check_refill, in_own_loop
from slicelock.servers import Kind, Mode, NoAnswer, Plan, Vllm, fleet
from slicelock.servers.plan import mode_of
