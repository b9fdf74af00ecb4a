"""The agent's process: command line, start, supervision, and a clean stop that leaves running jobs alone."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from slicelock.exits import ExitCode, UsageError, exit_code, told
from slicelock.keys import check_name
from slicelock.logs import LogFormat, LogLevel, set_up
from slicelock.output import UNREAD, OutputLost, prepare
from slicelock.settings import WAYS, AgentSettings
from slicelock.signals import ending
from slicelock.version import version
from slicelock_agent import check, health
from slicelock_agent.agent import Agent
from slicelock_agent.devices import parse_slices
from slicelock_agent.supervision import unless

log = logging.getLogger("slicelock_agent")

EPILOG = "example: slicelock-agent --slice trainers=sim:0    All settings: SLICELOCK_* variables."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the agent until it is told to stop (SIGTERM, SIGINT, SIGHUP); the exit code.

    141, as of a program that dies of SIGPIPE, when the reader of its output has gone.
    """
    prepare()
    try:
        code = _call(arguments)
        sys.stdout.flush()
    except OutputLost as lost:
        return UNREAD if lost.unread else _complain(lost)
    return code


def _call(arguments: Sequence[str] | None) -> int:
    _log_to_stderr(LogLevel.INFO)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    options = argparse.Namespace(debug=False)
    try:
        options = _parser().parse_args(arguments)
        return _act(options)
    except SystemExit:  # help or the version has been shown
        return ExitCode.DONE
    except OutputLost:
        raise
    except Exception as failure:  # noqa: BLE001 - whatever it is, the user gets one line
        return _complain(failure, debug=options.debug)


def _act(options: argparse.Namespace) -> int:
    """Do what the command line asks for; the exit code."""
    for kind, value in (("node", options.node), ("pool", options.pool)):
        if value is not None:
            check_name(kind, value, UsageError)
    settings = AgentSettings.load(
        node=options.node, state_dir=options.state_dir, pool=options.pool, fallback=options.fallback
    )
    level = LogLevel.DEBUG if options.debug else settings.log_level or LogLevel.INFO
    _log_to_stderr(level, settings.log_format)
    if options.check:
        return check.show(settings, as_json=options.json)
    if options.health:
        return health.show(settings, as_json=options.json)
    if options.json:
        raise UsageError("--json is for --check and --health.", advice="See: slicelock-agent --help")
    asyncio.run(_serve(Agent(settings, parse_slices(options.slices), version())))
    return ExitCode.DONE


def _complain(failure: Exception, *, debug: bool = False) -> int:
    """Say in one line what has ended the program; its exit code."""
    log.error("error: %s", told(failure), exc_info=failure if debug else None)
    return exit_code(failure)


def _log_to_stderr(level: LogLevel, kind: LogFormat = LogFormat.TEXT) -> None:
    set_up("slicelock-agent", level, kind)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """What is wrong, in a line as every other error."""
        raise UsageError(f"{message[:1].upper()}{message[1:]}.", advice="See: slicelock-agent --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="slicelock-agent",
        description="Serves slices on this machine: moves runs' device state out of each other's way.",
        epilog=EPILOG,
    )
    add = parser.add_argument
    add(
        "--slice",
        dest="slices",
        action="append",
        default=[],
        metavar="NAME=DEVICES",
        help="a slice and its devices, separated by commas (sim:<name>: simulated); may be repeated",
    )
    add("--node", help="this machine's name in the pool (SLICELOCK_NODE; default: the host name)")
    add("--pool", help="the coordination domain (SLICELOCK_POOL)")
    add("--state-dir", help="the folder with the agent's journal (SLICELOCK_STATE_DIR)")
    add("--fallback", help=f"how runs may be evicted, in order: {','.join(WAYS)} (SLICELOCK_FALLBACK)")
    looks = parser.add_mutually_exclusive_group()
    look = looks.add_argument
    look("--check", action="store_true", help="look at this machine's GPUs and who uses them, and end")
    look("--health", action="store_true", help="look whether this node's agent is heard of, and end")
    add("--json", action="store_true", help="with --check or --health: print JSON")
    add("--debug", action="store_true", help="log more, and show tracebacks")
    add("--version", action="version", version=f"slicelock-agent {version()}")
    return parser


async def _serve(agent: Agent) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def asked(number: signal.Signals) -> None:
        if stop.is_set():
            _leave(number)
        log.info("%s: stopping; running jobs are left alone", number.name)
        stop.set()

    for number in ending():
        loop.add_signal_handler(number, asked, number)
    _more_files()
    try:
        if await unless(stop, _started(agent)):
            gc.freeze()  # what has been loaded stays; collections need not look at it again
            with contextlib.suppress(OutputLost):
                print(f"slicelock-agent ready: {agent.summary}", flush=True)
            await agent.serve(stop)
    finally:
        await agent.close()


async def _started(agent: Agent) -> bool:
    await agent.start()
    return True


def _leave(number: signal.Signals) -> NoReturn:
    """Asked twice: end now. The journal says what was under way."""
    os._exit(128 + number)


def _more_files() -> None:
    """A pidfd for each process takes a descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
