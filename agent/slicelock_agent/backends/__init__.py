"""The ways to move a run's device state. Backends do not import each other.

The agent's own are named here, so that it works from a checkout as well; others come from the entry points
`slicelock.backends` of installed packages. A backend is made with a `BackendContext`.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from slicelock.errors import BackendUnavailable
from slicelock_agent.backends.base import Backend, BackendContext
from slicelock_agent.backends.together import Together

GROUP = "slicelock.backends"
OWN = {
    "cuda": "slicelock_agent.backends.cuda:CudaBackend",
    "hooks": "slicelock_agent.backends.hooks:HooksBackend",
    "http": "slicelock_agent.backends.http:HttpBackend",
    "sim": "slicelock_agent.backends.sim:SimBackend",
}


def load(context: BackendContext) -> dict[str, Backend]:
    """Every backend there is, by name; BackendUnavailable when one of another package cannot be made.

    A run's own ways are one: commands to the hooks of its processes, and questions to its servers.
    """
    found = {name: _own(place) for name, place in OWN.items()}
    for entry in entry_points(group=GROUP):
        if entry.name not in found:
            found[entry.name] = _foreign(entry)
    made = {name: _make(name, kind, context) for name, kind in found.items()}
    return {**made, "hooks": Together(made["hooks"], made["http"])}


def _own(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def _foreign(entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except Exception as failure:
        raise BackendUnavailable(
            f"The backend {entry.name!r} ({entry.value}) cannot be loaded: {failure}.",
            advice="Repair or remove the package that brings it.",
        ) from failure


def _make(name: str, kind: Any, context: BackendContext) -> Backend:
    made = kind(context)
    if not isinstance(made, Backend):
        asked = {*vars(Backend), *Backend.__annotations__}
        lacking = sorted(one for one in asked if not one.startswith("_") and not hasattr(made, one))
        raise BackendUnavailable(
            f"The backend {name!r} lacks {', '.join(lacking)}, which slicelock_agent.backends.base asks for.",
            advice="Repair, update or remove the package that brings it.",
        )
    return made
