"""`slicelock doctor`: what is well, what is not, and what to do."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import typer
from rich.console import RenderableType
from rich.text import Text

from slicelock.cli import checks, doctor_gpu, failures, options, render
from slicelock.cli.app import app
from slicelock.cli.checks import Finding, Verdict
from slicelock.cli.console import show, show_json
from slicelock.cli.failures import ExitCode
from slicelock.cli.pool import connected, look
from slicelock.errors import SlicelockError
from slicelock.settings import AgentSettings, Settings
from slicelock.store.probe import probe

STYLES = {Verdict.OK: "green", Verdict.WARNING: "yellow", Verdict.FAILED: "bold red"}


@app.command(epilog="Example: slicelock doctor --json")
def doctor(pool: options.Pool = None, as_json: options.Json = False, debug: options.Debug = False) -> None:
    """Check the connection, the server, the agents and the rights, and say what to do."""
    findings, code = examine(pool)
    if as_json:
        show_json({"ok": code == ExitCode.DONE, "checks": [asdict(one) for one in findings]})
    else:
        show(table(findings))
    if code != ExitCode.DONE:
        raise typer.Exit(code)


def examine(pool: str | None) -> tuple[list[Finding], ExitCode]:
    """Look at everything that can be looked at, and the exit code for it."""
    findings: list[Finding] = []
    try:
        findings.extend(look_around(pool))
    except SlicelockError as error:
        code = failures.exit_code(error)
        check = "settings" if code == ExitCode.SETTINGS else "connection"
        found = failures.one_line(error).removesuffix(error.advice).strip()
        return [*findings, Finding(check, Verdict.FAILED, found, error.advice)], code
    failed = any(one.verdict == Verdict.FAILED for one in findings)
    return findings, ExitCode.OTHER if failed else ExitCode.DONE


def look_around(pool: str | None) -> Iterator[Finding]:
    """Every finding, from what all others need to what stands on it."""
    yield from checks.settings(Settings.load(pool=pool))
    yield from this_machine(AgentSettings.load(pool=pool))
    yield from doctor_gpu.gpus()
    with connected(pool) as (store, settings):
        facts = probe(settings)
        yield from checks.server(facts)
        yield from checks.pool(look(store, settings))


def this_machine(given: AgentSettings) -> Iterator[Finding]:
    """What an agent on this machine would find."""
    state = next(one for one in (given.state_dir, *given.state_dir.parents) if one.exists())
    yield checks.finding(
        "state folder",
        not os.access(state, os.W_OK),
        str(given.state_dir),
        "An agent of this user cannot write there; set SLICELOCK_STATE_DIR or change its rights.",
        Verdict.WARNING,
    )
    memory = given.sim_dir if given.sim_dir.exists() else Path("/dev/shm")
    free = shutil.disk_usage(memory).free if memory.exists() else 0
    yield checks.finding(
        "shared memory",
        free < 2 * given.sim_capacity,
        f"{free / 2**20:,.0f} MiB free in {memory}",
        "A simulated accelerator and one saved run need twice SLICELOCK_SIM_CAPACITY; free or enlarge it.",
        Verdict.WARNING,
    )


def table(findings: list[Finding]) -> RenderableType:
    """The findings, a row each, with what to do below those that are not well."""
    made = render.table("check", "", "found")
    for one in findings:
        words = Text(one.found)
        if one.advice and one.advice not in one.found:
            words.append(f"\n→ {one.advice}", style="dim")
        made.add_row(one.check, Text(one.verdict, style=STYLES[one.verdict]), words)
    return made
