"""`slicelock doctor`: what is well, what is not, and what to do."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import typer
from rich.console import RenderableType
from rich.text import Text

from slicelock.cli import checks, checks_redis, doctor_gpu, failures, options, render
from slicelock.cli.app import app
from slicelock.cli.console import show, show_json
from slicelock.cli.failures import ExitCode
from slicelock.cli.pool import connected, look
from slicelock.errors import ConfigurationError, SchemaMismatch, SlicelockError, StoreError
from slicelock.exits import told
from slicelock.findings import Finding, Severity, finding
from slicelock.keys import SCHEMA
from slicelock.paths import is_there
from slicelock.settings import AgentSettings, Settings, StoreSettings
from slicelock.store import EventReader
from slicelock.store.probe import probe
from slicelock.store.sentinel_facts import ask_sentinels
from slicelock.version import version
from slicelock.words import clean

STYLES = {Severity.OK: "green", Severity.WARNING: "yellow", Severity.CRITICAL: "bold red"}
HOURS = 24  # so far back it looks for steps of the clock


@app.command(epilog="Example: slicelock doctor --json")
def doctor(pool: options.Pool = None, as_json: options.Json = False, debug: options.Debug = False) -> None:
    """Check settings, Redis, Sentinels, rights, slices and agents; say what is wrong, and what to do."""
    findings, code = examine(pool)
    if as_json:
        worst = max((one.severity for one in findings), key=list(Severity).index)
        show_json(
            {"ok": code == ExitCode.DONE, "severity": worst, "checks": [asdict(one) for one in findings]}
        )
    else:
        show(table(findings))
    if code != ExitCode.DONE:
        raise typer.Exit(code)


def examine(pool: str | None) -> tuple[list[Finding], ExitCode]:
    """Look at everything that can be looked at, and the exit code for it."""
    findings: list[Finding] = []
    try:
        for one in look_around(pool):
            findings.append(one)  # noqa: PERF402 - what was found before an error is kept
    except SlicelockError as error:
        if _is_critical(findings) and isinstance(error, ConfigurationError):
            return (
                findings,
                ExitCode.OTHER,
            )  # what is wrong is among them, and has kept the rest from being seen
        found = told(error).removesuffix(error.advice).strip()
        findings.append(Finding(_about(error), Severity.CRITICAL, found, error.advice))
        return findings, failures.exit_code(error)
    return findings, ExitCode.OTHER if _is_critical(findings) else ExitCode.DONE


def _is_critical(findings: Sequence[Finding]) -> bool:
    return any(one.severity == Severity.CRITICAL for one in findings)


def _about(error: SlicelockError) -> str:
    """The check that has ended with an error."""
    if isinstance(error, SchemaMismatch):
        return "schema"
    return "connection" if isinstance(error, StoreError) else "settings"


def look_around(pool: str | None) -> Iterator[Finding]:
    """Every finding, from what all others need to what stands on it."""
    yield from checks.settings(Settings.load(pool=pool))
    yield from this_machine(AgentSettings.load(pool=pool))
    yield from doctor_gpu.gpus()
    with connected(pool) as (store, settings):
        sentinels = ask_sentinels(settings)
        yield from checks_redis.sentinels(sentinels)
        yield from checks_redis.server(probe(settings))
        seen = look(store, settings)
        yield from checks.pool(seen, version())
        yield Finding("schema", Severity.OK, f"{SCHEMA}, as this program's")
        yield clock_steps(settings, served=bool(seen.nodes))


def clock_steps(settings: StoreSettings, *, served: bool) -> Finding:
    """Steps of the clock of late, where this user may read the events."""
    try:
        with EventReader(settings) as clock:
            since = clock.now_ms() - HOURS * 3_600_000
        with EventReader(settings, since_ms=since) as events:
            steps = [one for one in events.read_all() if one.type == "clock"]
        return checks.clock_steps(steps, HOURS, served=served)
    except SlicelockError:
        return Finding("clock steps", Severity.OK, checks_redis.NOT_TOLD)


def this_machine(given: AgentSettings) -> Iterator[Finding]:
    """What an agent on this machine would find."""
    state = next(one for one in (given.state_dir, *given.state_dir.parents) if is_there(one))
    yield finding(
        "state folder",
        not (state.is_dir() and os.access(state, os.W_OK)),
        str(given.state_dir),
        "An agent of this user cannot write there; set SLICELOCK_STATE_DIR or change its rights.",
        Severity.WARNING,
    )
    memory = given.sim_dir if is_there(given.sim_dir) else Path("/dev/shm")
    free = shutil.disk_usage(memory).free if is_there(memory) else 0
    yield finding(
        "shared memory",
        free < 2 * given.sim_capacity,
        f"{free / 2**20:,.0f} MiB free in {memory}",
        "A simulated accelerator and one saved run need twice SLICELOCK_SIM_CAPACITY; free or enlarge it.",
        Severity.WARNING,
    )


def table(findings: list[Finding]) -> RenderableType:
    """The findings, a row each, with what to do below those that are not well."""
    made = render.table("check", "", "found")
    for one in findings:
        words = Text(clean(one.found))
        if one.meaning:
            words.append(f"\n{one.meaning}", style="dim")
        if one.remedy and one.remedy not in one.found:
            words.append(f"\n→ {one.remedy}")
        made.add_row(one.check, Text(one.severity, style=STYLES[one.severity]), words)
    return made
