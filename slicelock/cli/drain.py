"""`slicelock slice drain` and `undrain`: let nothing new start on a slice, or on all slices of a node."""

from __future__ import annotations

from typing import Annotated

import typer

from slicelock.cli import options
from slicelock.cli.console import say
from slicelock.cli.pool import connected, look, refused, unknown
from slicelock.cli.slices import group
from slicelock.model import SliceView
from slicelock.settings import StoreSettings
from slicelock.store.sync import Store
from slicelock.wire import Drain

Name = Annotated[str, typer.Argument(metavar="NAME", help="The slice's name, or the node's with --node.")]
IsNode = Annotated[bool, typer.Option("--node", help="NAME is a node: all slices that it is part of.")]


@group.command(epilog='Example: slicelock slice drain trainers --why "node goes down at six"')
def drain(
    name: Name,
    node: IsNode = False,
    why: Annotated[str, typer.Option("--why", help="The reason, for those who wait and the history.")] = "",
    pool: options.Pool = None,
    debug: options.Debug = False,
) -> None:
    """Let nothing new start. Turns that run end by themselves, and whoever waits goes on waiting."""
    for one in _each(name, node, pool, draining=True, why=why):
        say(
            f"{one.name} is draining: nothing new starts there. "
            f"To let it go on: slicelock slice undrain {one.name}"
        )


@group.command(epilog="Example: slicelock slice undrain --node gpu-1")
def undrain(
    name: Name, node: IsNode = False, pool: options.Pool = None, debug: options.Debug = False
) -> None:
    """Let turns start again."""
    for one in _each(name, node, pool, draining=False):
        say(f"{one.name} goes on." if one.draining else f"{one.name} was not draining; nothing has changed.")


def _each(name: str, node: bool, pool: str | None, *, draining: bool, why: str = "") -> list[SliceView]:
    """Do it to the slice, or to each slice of the node; what they were like before."""
    options.checked_name("node" if node else "slice", name, "NAME")
    with connected(pool) as (store, settings):
        before = _of_node(store, settings, name) if node else list(look(store, settings, name).slices)
        for one in before:
            if store.run(Drain(one.name, draining, why)).outcome == "NO_SUCH_SLICE":
                raise unknown(one.name, settings)
    return before


def _of_node(store: Store, settings: StoreSettings, node: str) -> list[SliceView]:
    found = [one for one in look(store, settings).slices if node in one.nodes]
    if not found:
        raise refused(f"Node {node} was not changed", "no slice has it", "See `slicelock status`.")
    return found
