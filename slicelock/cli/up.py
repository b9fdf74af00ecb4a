"""`slicelock up`: a server and an agent for one machine, for as long as the command runs."""

from __future__ import annotations

import shlex
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from slicelock.cli import options
from slicelock.cli.app import app
from slicelock.cli.console import say, stopping
from slicelock.cli.failures import UsageError
from slicelock.embedded import EmbeddedServer
from slicelock.errors import AgentError, SlicelockError
from slicelock.local_agent import LocalAgent
from slicelock.scratch import scratch, temporary
from slicelock.settings import StoreSettings

DEFAULT_SLICE = "accelerator=sim:0"
SHARED_MEMORY = Path("/dev/shm")
EXPORTED = ("SLICELOCK_REDIS_URL", "SLICELOCK_POOL", "SLICELOCK_SIM_DIR", "SLICELOCK_SIM_DEVICE")
LOOK_S = 0.25  # between two looks at whether both are still alive
RETRY_S = 2.0  # from an agent that did not become ready to the next

Slices = Annotated[
    list[str] | None,
    typer.Option(
        "--slice",
        metavar="NAME=DEVICES",
        help="A slice and its devices on this machine, separated by commas: sim:NAME for a simulated one, "
        f"0, 1, GPU-… or all for GPUs. Repeat it for more slices. Default: {DEFAULT_SLICE}.",
        show_default=False,
    ),
]
Port = Annotated[
    int | None,
    typer.Option(
        "--port",
        min=0,
        max=65_535,
        help="Listen on this port of 127.0.0.1 instead of a unix socket; 0: any free one.",
    ),
]


def slices_of(given: list[str]) -> dict[str, str]:
    """Read `NAME=DEVICES` options; a usage error names the one that makes no sense."""
    slices: dict[str, str] = {}
    for option in given:
        name, sign, devices = option.partition("=")
        if not sign or not devices.strip(","):
            raise typer.BadParameter(
                f"{option!r} is not NAME=DEVICES; for example {DEFAULT_SLICE}.", param_hint="--slice"
            )
        if options.checked_name("slice", name, "--slice") in slices:
            raise typer.BadParameter(f"Slice {name!r} is given twice.", param_hint="--slice")
        slices[name] = devices
    return slices


@app.command(epilog="Example: slicelock up --slice trainers=sim:0 --slice samplers=sim:1")
def up(
    slices: Slices = None,
    port: Port = None,
    pool: options.Pool = None,
    debug: options.Debug = False,
) -> None:
    """Run a server and an agent on this machine until Ctrl-C; prints what other shells need."""
    wanted = slices_of(slices or [DEFAULT_SLICE])
    name_of_pool = StoreSettings.load(pool=pool).pool
    check_port(port)
    with stopping() as stopped, ExitStack() as stack:
        server = stack.enter_context(EmbeddedServer(port=port))
        env = environment(server.url, name_of_pool, stack, wanted)
        agent = stack.enter_context(LocalAgent(wanted, env))
        for name in EXPORTED:
            if name in env:
                print(f"export {name}={shlex.quote(env[name])}", flush=True)
        to_do = "Paste the lines above into" if sys.stdout.isatty() else "Ready; read the exports into"
        say(f"# Slices: {', '.join(wanted)}. {to_do} other shells. Ctrl-C ends everything.")
        not_before = 0.0
        while not stopped():
            if not server.running:
                raise AgentError("The server has ended by itself, and the pool with it.")
            if agent.process.poll() is not None and time.monotonic() >= not_before:
                not_before = start_again(agent)
            if news := agent.news():
                say(news.rstrip())
            time.sleep(LOOK_S)


def start_again(agent: LocalAgent) -> float:
    """Start an agent that has ended: it takes up its journal, and jobs go on. When it may be tried again
    (`time.monotonic()`) if it has ended again, or does not become ready, which is said.
    """
    code = agent.process.wait()
    how = f"was ended by signal {-code}" if code < 0 else f"has ended with code {code}"
    say(f"The agent {how}; it is started again.")
    try:
        agent.start()
    except (SlicelockError, OSError) as error:
        say(f"{error} It is tried again in {RETRY_S:g} s.")
    return time.monotonic() + RETRY_S


def check_port(port: int | None) -> None:
    """Refuse a port that the server could not listen on; UsageError says why."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
        try:
            if port:
                probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise UsageError(
                f"No server can listen on port {port} of 127.0.0.1: {error.strerror}.",
                advice="Choose another --port, or 0 for any free one.",
            ) from None


def environment(url: str, pool: str, stack: ExitStack, slices: Mapping[str, str]) -> dict[str, str]:
    """The variables for the agent and for other shells; their folders go when the stack does."""
    env = {"SLICELOCK_REDIS_URL": url, "SLICELOCK_POOL": pool}
    env["SLICELOCK_STATE_DIR"] = str(stack.enter_context(scratch(temporary(), "up")))
    simulated = [one for devices in slices.values() for one in devices.split(",") if one.startswith("sim:")]
    if simulated:
        devices = stack.enter_context(scratch(SHARED_MEMORY, "up"))
        env |= {"SLICELOCK_SIM_DIR": str(devices), "SLICELOCK_SIM_DEVICE": simulated[0]}
    return env
