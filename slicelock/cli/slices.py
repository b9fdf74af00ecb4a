"""`slicelock slice …`: declare, forget and list slices."""

from __future__ import annotations

import re
from typing import Annotated

import typer
from rich.console import Group
from rich.table import Table

from slicelock.cli import options, render, slice_settings
from slicelock.cli.app import Commands, app
from slicelock.cli.console import say, show, show_json
from slicelock.cli.failures import Refused
from slicelock.cli.pool import connected, look, refused, unknown
from slicelock.picture import SENSELESS_REMEDY, SliceView
from slicelock.wire import Declare, DeclareReply, Forget

group = Commands(help="Declare, forget and list slices.", epilog="Example: slicelock slice list")
app.add_typer(group, name="slice")

Nodes = Annotated[
    list[str] | None,
    typer.Option(
        "--node",
        metavar="NODE=DEVICES",
        help="A node of the slice and its devices there, separated by commas. Repeat it for each node; "
        "a new slice without one is agentless.",
    ),
]
Agentless = Annotated[
    bool,
    typer.Option(
        "--agentless",
        help="The slice has no nodes: a plain lease for something that has no device state. "
        "Also takes a slice's nodes away, so that turns begin without its agents.",
    ),
]
DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9:._/-]{0,127}")
IsNode = Annotated[bool, typer.Option("--node", help="NAME is a node that is gone for good, not a slice.")]


def devices_by_node(given: list[str]) -> dict[str, list[str]]:
    """Read `NODE=DEVICES` options; a usage error names the one that makes no sense."""
    nodes: dict[str, list[str]] = {}
    for option in given:
        node, sign, text = option.partition("=")
        devices = [device for device in text.replace(",", " ").split() if device]
        if not sign or not devices:
            raise typer.BadParameter(
                f"{option!r} is not NODE=DEVICES; for example gpu-1=0,1.", param_hint="--node"
            )
        if wrong := next((device for device in devices if not DEVICE.fullmatch(device)), None):
            raise typer.BadParameter(
                f"device {wrong!r} is not allowed; name GPUs by index or UUID, or as sim:<name>.",
                param_hint="--node",
            )
        if options.checked_name("node", node, "--node") in nodes or len(set(devices)) < len(devices):
            raise typer.BadParameter(f"{option!r} names a node or a device twice.", param_hint="--node")
        nodes[node] = devices
    return nodes


def nodes_kept(name: str, reply: DeclareReply, why: str) -> Refused:
    """The slice has nodes: whoever forgets to repeat them does not mean to lose its agents. `why`: what makes
    no sense in its record."""
    what = f"Slice {name} was not changed"
    if why:
        return refused(what, f"its record makes no sense, {why}", SENSELESS_REMEDY)
    nodes = {node: tuple(devices.split()) for node, devices in sorted(reply.nodes.items())}
    again = " ".join(f"--node {node}={','.join(devices)}" for node, devices in nodes.items())
    return refused(
        what,
        f"it has nodes ({render.devices(nodes)}), whose agents would serve it no more",
        f"Repeat them ({again}), or take them away with --agentless.",
    )


@group.command(epilog="Example: slicelock slice declare trainers --node gpu-1=0,1,2,3 --node gpu-2=0,1,2,3")
def declare(
    name: options.SliceName,
    *,
    node: Nodes = None,
    agentless: Agentless = False,
    setting: slice_settings.Option = None,
    pool: options.Pool = None,
    debug: options.Debug = False,
) -> None:
    """Declare a slice, or change one that is not in use."""
    nodes, settings = devices_by_node(node or []), slice_settings.read(setting or [])
    if nodes and agentless:
        raise typer.BadParameter("An agentless slice has no --node.", param_hint="--agentless")
    with connected(pool) as (store, connection):
        reply = store.run(Declare(name, nodes, settings, keep_nodes=not agentless))
        if reply.outcome == "HAS_NODES":
            raise nodes_kept(name, reply, look(store, connection).senseless.get(f"slice {name}", ""))
    if reply.outcome == "OVERLAP":
        raise refused(
            f"Slice {name} was not declared", reply.reason, f"Forget {reply.slice}, or use other devices."
        )
    if reply.outcome == "IN_USE":
        raise refused(f"Slice {name} was not changed", reply.reason, "Try again when it is free.")
    say(f"Declared {name} ({render.devices({n: tuple(d) for n, d in nodes.items()})}).")


@group.command(epilog="Example: slicelock slice forget trainers")
def forget(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The slice's name, or the node's with --node.")],
    node: IsNode = False,
    pool: options.Pool = None,
    debug: options.Debug = False,
) -> None:
    """Forget a slice that is not in use, or a node that has no slice."""
    kind = "node" if node else "slice"
    options.checked_name(kind, name, "NAME")
    with connected(pool) as (store, settings):
        reply = store.run(Forget(kind, name))
    if reply.outcome == "NO_SUCH_SLICE":
        raise unknown(name, settings)
    if reply.outcome == "NO_SUCH_NODE":
        raise refused(f"Node {name} was not forgotten", "there is none", "See `slicelock status`.")
    if reply.outcome == "IN_USE":
        advice = "Forget those first, or declare them without it." if node else "Try again when it is free."
        raise refused(f"{kind.capitalize()} {name} was not forgotten", reply.reason, advice)
    say(f"Forgot {name}.")


@group.command("list", epilog="Example: slicelock slice list --json")
def list_(pool: options.Pool = None, as_json: options.Json = False, debug: options.Debug = False) -> None:
    """List the slices of a pool with their nodes and devices."""
    with connected(pool) as (store, settings):
        picture = look(store, settings)
    if as_json:
        show_json({"pool": picture.pool, "slices": [_facts(one) for one in picture.slices]})
    elif picture.slices:
        show(Group(_table(picture.slices), *render.senseless(picture)))
    else:
        show(render.picture(picture))


def _facts(one: SliceView) -> dict[str, object]:
    return {"name": one.name, "state": one.state, "nodes": dict(one.nodes), "queued": one.queued}


def _table(slices: tuple[SliceView, ...]) -> Table:
    made = render.table("slice", "state", "devices")
    for one in slices:
        made.add_row(one.name, one.state, render.devices(one.nodes))
    return made
