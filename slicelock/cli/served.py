"""`--server` of `slicelock run`: the model server that a command is, in words that agents get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import typer

from slicelock.errors import ConfigurationError
from slicelock.hooks.serving import RESIDUE_GIB
from slicelock.host_memory import GIB
from slicelock.servers import Plan

HINT = "--server"
OPTIONS = ("level", "mode", "tags", "reload", "drain", "timeout", "residue")


def hooks_of(words: Sequence[str]) -> list[Mapping[str, Any]]:
    """What agents are told of the command's servers; a usage error names what is wrong."""
    return [_hook(word) for word in words]


def _hook(word: str) -> Mapping[str, Any]:
    """`KIND=URL` and what else is to be known: `vllm=http://127.0.0.1:8000,mode=keep,residue=2`."""
    kind, _, rest = word.partition("=")
    url, *options = rest.split(",")
    facts: dict[str, Any] = {"kind": kind, "url": url}
    for option in options:
        name, _, value = option.partition("=")
        if name not in OPTIONS or not value:
            raise typer.BadParameter(
                f"{option!r} is not among NAME=VALUE with a name of {', '.join(OPTIONS)}.", param_hint=HINT
            )
        facts[name] = value.split("+") if name == "tags" else value
    try:
        residue = float(facts.pop("residue", RESIDUE_GIB)) * GIB
        if not 0 <= residue < 2**63:
            raise ValueError("A residue is a number of GiB.")  # noqa: TRY301 - as float() does
        plan = Plan.of(facts)
    except (ConfigurationError, ValueError) as failure:
        raise typer.BadParameter(str(failure), param_hint=HINT) from None
    plan.address.warn_of_strangers()
    return {
        "name": str(plan.kind),
        "slices": [],
        "self": False,
        "residue": round(residue),
        "server": plan.facts(),
    }
