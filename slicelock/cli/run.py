"""`slicelock run`: give a command its run and environment, or hold a slice for it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Annotated
from urllib.parse import urlsplit

import typer

from slicelock.cli import options
from slicelock.cli.app import app
from slicelock.cli.child import SignalWatch, check_command, not_started
from slicelock.cli.console import logged
from slicelock.cli.hold import Hold, Plan
from slicelock.cli.pool import connected
from slicelock.cli.served import hooks_of
from slicelock.companion.launch import who_am_i
from slicelock.errors import UnknownSlice
from slicelock.settings import Mode, Settings
from slicelock.wire import Status

Command = Annotated[
    list[str],
    typer.Argument(metavar="-- COMMAND…", help="The command and its arguments.", show_default=False),
]
Slices = Annotated[
    list[str] | None,
    typer.Option(
        "--slice", metavar="SLICE", help="The slice; repeat it for several, all or none.", show_default=False
    ),
]
HoldIt = Annotated[bool, typer.Option("--hold", help="Hold the slice for the whole command.")]
Until = Annotated[
    str | None,
    typer.Option(
        "--until",
        metavar="URL",
        help="Hold the slice only until this URL answers, as a server's health check does. Implies --hold.",
        show_default=False,
    ),
]
Servers = Annotated[
    list[str] | None,
    typer.Option(
        "--server",
        metavar="KIND=URL",
        help="The command is a model server (vllm or sglang) that agents put to sleep while another run has "
        "the slice; repeat it for several.",
        show_default=False,
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout", min=0, help="Seconds to wait for the turn. Default: without limit.", show_default=False
    ),
]


Job = Annotated[
    str | None,
    typer.Option("--job", help="The experiment. Default: SLICELOCK_JOB.", callback=options.name_of("job")),
]
Phase = Annotated[
    str,
    typer.Option(
        "--phase",
        help="What the turn is for, shown to others.",
        callback=options.name_of("phase", or_none=True),
    ),
]
HELP = (
    "Run a command as a run of its own; with --hold, only while the slice is held.\n\n"
    "The command gets SLICELOCK_JOB, SLICELOCK_RUN and the pool's address. With --hold it needs no change: "
    "it runs with SLICELOCK_MODE=off, gets slicelock's signals, and is ended if the turn is lost. The exit "
    "code is its own unless slicelock ended it."
)


@app.command(
    help=HELP,
    epilog="Example: slicelock run --slice trainers --job baseline --hold -- python train.py",
    context_settings={"allow_interspersed_args": False},
)
def run(
    command: Command,
    *,
    slices: Slices = None,
    job: Job = None,
    hold: HoldIt = False,
    until: Until = None,
    servers: Servers = None,
    phase: Phase = "",
    timeout: Timeout = None,
    pool: options.Pool = None,
    debug: options.Debug = False,
) -> None:
    """Run a command; see HELP."""
    names = tuple(options.checked_name("slice", name, "--slice") for name in slices or ())
    check_usage(names, hold, until)
    if not (hold or until):
        no_turn({"--server": servers, "--phase": phase, "--timeout": timeout})
    hooks = hooks_of(servers or ())
    settings = settings_of(job, pool)
    env = environment(settings, names)
    check_command(command)
    if settings.mode in (Mode.OFF, Mode.OBSERVE):
        become(command, env)
    if not (hold or until):
        check_slices(names, pool)
        become(command, env)
    plan = Plan(
        command, {**env, "SLICELOCK_MODE": "off"}, names, settings, phase, timeout, until or "", hooks
    )
    SignalWatch.block()
    with logged():
        code = asyncio.run(Hold(plan).run())
    raise typer.Exit(code)


def check_usage(names: Sequence[str], hold: bool, until: str | None) -> None:
    """Refuse what makes no sense together."""
    if (hold or until is not None) and not names:
        raise typer.BadParameter("--hold and --until need a slice to hold.", param_hint="--slice")
    if until is not None and not can_be_asked(until):
        raise typer.BadParameter(
            f"{until!r} is no URL that can be asked; for example http://127.0.0.1:8000/health.",
            param_hint="--until",
        )


def no_turn(options: Mapping[str, object]) -> None:
    """Refuse what is about the turn where the command takes its own."""
    for name, value in options.items():
        if value not in (None, "", []):
            raise typer.BadParameter(f"{name} needs --until (or --hold).", param_hint=name)


def can_be_asked(url: str) -> bool:
    """Whether this is the URL of something that HTTP may be spoken with: no spaces, no user."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return False
    said = parts.path + parts.query
    plain = said.isascii() and url.isprintable() and " " not in url and "@" not in parts.netloc
    return bool(parts.scheme in ("http", "https") and host and port != 0 and plain)


def settings_of(job: str | None, pool: str | None) -> Settings:
    """The settings of this run, which is named here unless it or its launcher has named it."""
    settings = Settings.load(job=job, pool=pool)
    if settings.mode in (Mode.OFF, Mode.OBSERVE):
        return settings
    settings.url()
    settings.job_name()
    # Every process of a launch is another member, but they have one run.
    who = who_am_i(settings.model_copy(update={"members": "1"}), os.environ)
    return settings.model_copy(update={"run": who.run})


def environment(settings: Settings, names: Sequence[str]) -> Mapping[str, str]:
    """What the command is given beside this process's environment."""
    given = {
        "SLICELOCK_REDIS_URL": settings.redis_url.get_secret_value() if settings.redis_url else None,
        "SLICELOCK_POOL": settings.pool,
        "SLICELOCK_JOB": settings.job,
        "SLICELOCK_RUN": settings.run,
        "SLICELOCK_SLICE": " ".join(names) or None,
    }
    return {**os.environ, **{name: value for name, value in given.items() if value is not None}}


def check_slices(names: Sequence[str], pool: str | None) -> None:
    """Refuse a slice that is not declared before the command runs into it: UnknownSlice, as for a turn."""
    for name in names:
        with connected(pool) as (store, settings):
            if store.run(Status(name, 0)).outcome == "NO_SUCH_SLICE":
                raise UnknownSlice(f"There is no slice {name!r} in pool {settings.pool!r}.", slice=name)


def become(command: Sequence[str], env: Mapping[str, str]) -> None:
    """Replace this process by the command; NotStarted when that is impossible."""
    try:
        os.execvpe(command[0], list(command), dict(env))
    except (OSError, ValueError) as error:
        raise not_started(command, getattr(error, "strerror", None) or str(error)) from None
