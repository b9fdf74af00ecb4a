"""What an agent would find on this machine's GPUs, and on every process there, before anyone depends on it.

`slicelock-agent --check` prints it, `slicelock doctor` shows it. It changes nothing, and needs no Redis.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from slicelock.errors import BackendUnavailable
from slicelock.findings import Finding, Severity
from slicelock.host_memory import available, readable, reserve_of
from slicelock.settings import AgentSettings
from slicelock_agent.backends.cuda import preflight
from slicelock_agent.backends.cuda.discovery import Process, described, environment, identified
from slicelock_agent.backends.cuda.helpers import Helpers
from slicelock_agent.backends.cuda.host import group_refusal, host_bytes
from slicelock_agent.backends.cuda.records import Saved
from slicelock_agent.nvml import Gpu, Gpus, Nvml

OK, WARNING, CRITICAL = Severity
PAGE = os.sysconf("SC_PAGE_SIZE")


def show(settings: AgentSettings, *, as_json: bool) -> int:
    """Print every finding; 1 when one has failed."""
    findings = list(look(settings, Nvml()))
    if as_json:
        print(json.dumps([asdict(one) for one in findings]))
    else:
        for one in findings:
            print(f"{one.severity:8} {one.check}: {one.found}{f' -> {one.remedy}' if one.remedy else ''}")
    return int(any(one.severity == CRITICAL for one in findings))


def look(settings: AgentSettings, gpus: Gpus) -> Iterator[Finding]:
    """Every finding, from what all others need to what stands on it."""
    try:
        found = gpus.all()
    except BackendUnavailable as failure:
        yield Finding("GPUs", CRITICAL, str(failure).removesuffix(failure.advice).strip(), failure.advice)
        return
    yield from _driver(settings)
    for gpu in found:
        yield from _gpu(gpu, gpus)
    sizes = _sizes(gpus)
    for one, size in sizes.items():
        yield _process(one, size)
    yield _host(settings, sum(sizes.values()))


def _driver(settings: AgentSettings) -> Iterator[Finding]:
    why = [*preflight.of_agent(), *preflight.of_library(settings.cuda_checkpoint)]
    if not why and (words := asyncio.run(_calls(settings))):
        why = [f"the driver cannot be called: {words}; look at it with nvidia-smi"]
    for one in why:
        yield _advised("driver checkpoint", WARNING, one)
    if not why:
        yield Finding("driver checkpoint", OK, "processes of other users can be saved and restored from here")


async def _calls(settings: AgentSettings) -> str:
    """Why a helper process cannot call the driver; empty when it can."""
    helpers = Helpers(["--program", str(settings.cuda_checkpoint)] if settings.cuda_checkpoint else [])
    try:
        answer = await helpers.call("ping", 0, 0, 10.0)
        return answer.words if answer.code else ""
    finally:
        helpers.close()


def _gpu(gpu: Gpu, gpus: Gpus) -> Iterator[Finding]:
    check, health = f"GPU {gpu.index}", gpus.health(gpu.uuid)
    used, free = gpus.memory(gpu.uuid)
    told = [
        gpu.name,
        gpu.uuid,
        f"{readable(used)} of {readable(used + free)} in use",
        f"driver {health.driver}",
        health.pcie,
    ]
    yield Finding(check, OK, ", ".join(part for part in told if part))
    for why in preflight.of_gpu(gpu.uuid, health):
        yield _advised(check, WARNING, why)


def _sizes(gpus: Gpus) -> dict[Process, int]:
    """Bytes of each process on all GPUs together."""
    sizes: dict[Process, int] = {}
    for gpu in gpus.all():
        for pid, size in gpus.users(gpu.uuid).items():
            if one := identified(pid):
                sizes[one] = sizes.get(one, 0) + (size or 0)
    return sizes


def _process(one: Process, size: int) -> Finding:
    """Whether a process could be saved by the driver now."""
    words = environment(one.pid)
    run = words.get("SLICELOCK_RUN") or words.get("SLICELOCK_JOB")
    check = f"run {run}" if run else "no run"
    found = (
        f"{described(one.pid)} has {readable(size)} on GPUs, {readable(_resident(one.pid))} in host memory"
    )
    why = preflight.of_run([one], []) or group_refusal({one: size})
    if why:
        return Finding(check, WARNING, f"{found}: {why}", "Give it hooks, or do as it says.")
    return Finding(check, OK, found)


def _resident(pid: int) -> int:
    """Bytes of host memory that a process has, pinned pools included."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except (OSError, ValueError, IndexError):
        return 0


def _host(settings: AgentSettings, on_gpus: int) -> Finding:
    """Whether everything that is on the GPUs now could be in host memory beside what is saved already."""
    total, free = available()
    left, saved = free - reserve_of(total), saved_bytes(settings)
    found = (
        f"{readable(on_gpus)} on GPUs, {readable(saved)} saved, {readable(max(0, left))} of host memory left"
    )
    if host_bytes(on_gpus) <= left:
        return Finding("host memory", OK, found)
    advice = "Not all of them can be saved at once; add memory, or have their hooks discard what they can."
    return Finding("host memory", WARNING, found, advice)


def saved_bytes(settings: AgentSettings) -> int:
    """Bytes of all runs that agents of this state folder have saved at present."""
    total = 0
    for path in Path(settings.state_dir).glob("*.saved/*/*.json"):
        try:
            total += Saved.read(path.read_text()).bytes
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return total


def _advised(check: str, severity: Severity, why: str) -> Finding:
    """A reason that ends with its remedy, as the preflight words it."""
    found, _, advice = why.partition("; ")
    return Finding(check, severity, found, f"{advice[:1].upper()}{advice[1:]}." if advice else "")
