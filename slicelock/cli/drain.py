"""`slicelock slice drain` and `undrain`: let nothing new start on a slice, or on all slices of a node."""

from __future__ import annotations

from typing import Annotated

import typer

from slicelock.cli import options
from slicelock.cli.console import say
from slicelock.cli.pool import connected, look, refused, unknown
from slicelock.cli.slices import group
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
        say(f"{one} is draining: nothing new starts there. To let it go on: slicelock slice undrain {one}")


@group.command(epilog="Example: slicelock slice undrain --node gpu-1")
def undrain(
    name: Name, node: IsNode = False, pool: options.Pool = None, debug: options.Debug = False
) -> None:
    """Let turns start again."""
    for one, was_draining in _each(name, node, pool, draining=False).items():
        say(f"{one} goes on." if was_draining else f"{one} was not draining; nothing has changed.")


def _each(name: str, node: bool, pool: str | None, *, draining: bool, why: str = "") -> dict[str, bool]:
    """Do it to the slice, or to each slice of the node; whether each was draining before."""
    options.checked_name("node" if node else "slice", name, "NAME")
    were: dict[str, bool] = {}
    with connected(pool) as (store, settings):
        for one in _of_node(store, settings, name) if node else [name]:
            reply = store.run(Drain(one, draining, why))
            if reply.outcome == "NO_SUCH_SLICE":
                raise unknown(one, settings)
            were[one] = reply.was_draining
    return were


def _of_node(store: Store, settings: StoreSettings, node: str) -> list[str]:
    found = [one.name for one in look(store, settings).slices if node in one.nodes]
    if not found:
        raise refused(f"Node {node} was not changed", "no slice has it", "See `slicelock status`.")
    return found
