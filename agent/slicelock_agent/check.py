"""What an agent would find on this machine's GPUs, and on every process there, before anyone depends on it.

`slicelock-agent --check` prints it, `slicelock doctor` shows it. It changes nothing, and needs no Redis.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from pydantic import ByteSize, TypeAdapter

from slicelock.errors import BackendUnavailable
from slicelock.findings import Finding, Severity
from slicelock.host_memory import available, readable, reserve_of
from slicelock.settings import AgentSettings
from slicelock_agent.backends.cuda import preflight
from slicelock_agent.backends.cuda.discovery import Process, described, environment, identified
from slicelock_agent.backends.cuda.helpers import Helpers
from slicelock_agent.backends.cuda.host import group_refusal, host_bytes, totals_of
from slicelock_agent.backends.cuda.saved_runs import Saved
from slicelock_agent.nvml import Gpu, Gpus, Health, Nvml
from slicelock_agent.processes import FIRST_NAMESPACE, namespace_of

OK, WARNING, CRITICAL = Severity
PAGE = os.sysconf("SC_PAGE_SIZE")
POOL = "SLICELOCK_HOST_POOL"
SIZE = TypeAdapter(ByteSize)
LAUNCHERS = {"TORCHELASTIC_RUN_ID", "SLURM_STEP_ID"}
LAUNCH = ("TORCHELASTIC_RUN_ID", "MASTER_PORT", "SLURM_JOB_ID", "SLURM_STEP_ID")
"""What processes that one launcher has started have in common, where no run is named."""
NO_ANSWER = "Look at it with nvidia-smi; a reset of the GPU or a reboot may bring it back."
Sizes = dict[Process, dict[str, int]]
"""Bytes of each process on each GPU."""


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
        yield _failed("GPUs", failure)
        return
    yield from _driver(settings)
    yield _namespace()
    if not found:
        advice = "Check it with nvidia-smi; in a container, start it with its GPUs."
        yield Finding("GPUs", CRITICAL, "the driver answers and shows none", advice)
    for gpu in found:
        yield from _gpu(gpu, gpus)
    sizes, saved = _sizes(found, gpus), saved_runs(settings)
    for run, processes in _by_run(sizes):
        yield _run(run, processes)
    for run, one in saved:
        yield _saved(run, one)
    yield _host(sizes, sum(one.bytes for _, one in saved))


def _driver(settings: AgentSettings) -> Iterator[Finding]:
    why = [*preflight.of_agent(), *preflight.of_library(settings.cuda_checkpoint)]
    if not why and (words := asyncio.run(_calls(settings))):
        why = [f"the driver cannot be called: {words}; look at it with nvidia-smi"]
    for one in why:
        yield _advised("driver checkpoint", WARNING, one)
    if not why:
        yield Finding("driver checkpoint", OK, "processes of other users can be saved and restored from here")


def _namespace() -> Finding:
    """Whether every process can be seen, whatever container it is in."""
    if namespace_of("self") == FIRST_NAMESPACE:
        return Finding("pid namespace", OK, "the machine's own: every process can be seen")
    return Finding(
        "pid namespace",
        WARNING,
        "not the machine's own: processes of other containers cannot be seen, nor who uses the GPUs",
        "Run the agent in the machine's own (pid: host; in Kubernetes: hostPID), or all jobs beside it.",
        "Runs that the agent does not see are refused.",
    )


async def _calls(settings: AgentSettings) -> str:
    """Why a helper process cannot call the driver; empty when it can."""
    helpers = Helpers(["--program", str(settings.cuda_checkpoint)] if settings.cuda_checkpoint else [])
    try:
        answer = await helpers.call("ping", 0, 0, 10.0)
        return answer.words if answer.code else ""
    finally:
        helpers.close()


def _gpu(gpu: Gpu, gpus: Gpus) -> Iterator[Finding]:
    check = f"GPU {gpu.index}"
    try:
        health, used, free = _asked(gpu, gpus)
    except BackendUnavailable as failure:
        yield _failed(check, failure, NO_ANSWER)
        return
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


def _asked(gpu: Gpu, gpus: Gpus) -> tuple[Health, int, int]:
    """What decides whether the GPU can be served; BackendUnavailable when it does not answer."""
    if gpu.silent:
        raise BackendUnavailable(gpu.silent)
    gpus.users(gpu.uuid)
    return gpus.health(gpu.uuid), *gpus.memory(gpu.uuid)


# ------------------------------------------------------------ runs


def _sizes(found: Sequence[Gpu], gpus: Gpus) -> Sizes:
    """Bytes of each process on each GPU that answers."""
    sizes: Sizes = {}
    for gpu in found:
        with suppress(BackendUnavailable):
            users = {} if gpu.silent else gpus.users(gpu.uuid)
            for pid, size in users.items():
                if one := identified(pid):
                    sizes.setdefault(one, {})[gpu.uuid] = size or 0
    return sizes


def _by_run(sizes: Sizes) -> Collection[tuple[str, Sizes]]:
    """The processes of each run together, with what the run is called."""
    runs: dict[tuple[str, ...], Sizes] = {}
    for one, size in sizes.items():
        runs.setdefault(_run_of(one.pid), {})[one] = size
    return [(run[0], found) for run, found in runs.items()]


def _run_of(pid: int) -> tuple[str, ...]:
    """What a process's run or job is called, and what else tells it from other runs here."""
    words = environment(pid)
    if run := words.get("SLICELOCK_RUN"):
        return (run,)
    launch = tuple(words.get(name, "") for name in LAUNCH) if LAUNCHERS & words.keys() else (str(pid),)
    return (words.get("SLICELOCK_JOB", ""), *launch)


def _run(run: str, sizes: Sizes) -> Finding:
    """Whether a run could be saved by the driver now, with all of its processes."""
    check, totals = f"run {run}" if run else "no run", totals_of(sizes)
    found = "; ".join(
        f"{described(one.pid)} has {readable(size)} on GPUs, {readable(_resident(one.pid))} in host memory"
        for one, size in totals.items()
    )
    devices = sorted({uuid for size in sizes.values() for uuid in size})
    if why := preflight.of_run(sorted(sizes), devices) or group_refusal(totals):
        return Finding(check, WARNING, f"{found}: {why}", "It needs hooks, if it has none, or do as it says.")
    return Finding(check, OK, found)


def _saved(run: str, saved: Saved) -> Finding:
    """A run that the driver has saved: its processes are not to be seen on any GPU."""
    here = [one for one in saved.processes if identified(one.pid) == one]
    found = f"{readable(saved.bytes)} saved by the driver"
    if saved.lost:
        lost = f"{found}, and lost: {saved.lost}"
        return Finding(f"run {run}", WARNING, lost, "End it, and start it again.")
    if not here:
        return Finding(f"run {run}", OK, f"{found}; all of its processes have ended, and an agent forgets it")
    names = ", ".join(described(one.pid) for one in here)
    return Finding(f"run {run}", OK, f"{found}: {names}")


def _resident(pid: int) -> int:
    """Bytes of host memory that a process has, pinned pools included."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except (OSError, ValueError, IndexError):
        return 0


# ------------------------------------------------------------ host memory


def _host(sizes: Sizes, saved_bytes: int) -> Finding:
    """Whether everything that is on the GPUs now could be in host memory beside what is saved already."""
    total, free = available()
    left, totals = free - reserve_of(total), totals_of(sizes)
    pools = {one: pool for one in totals if (pool := _pool(one.pid)) is not None}
    need = sum(max(host_bytes(size), pools.get(one, 0) - _resident(one.pid)) for one, size in totals.items())
    parts = [f"{readable(sum(totals.values()))} on GPUs", f"{readable(saved_bytes)} saved"]
    if pools:
        parts.append(f"{readable(sum(pools.values()))} that pools may take ({POOL})")
    found = f"{', '.join(parts)}, {readable(max(0, left))} of host memory left"
    if len(pools) < len(totals):
        found += f"; a pool without {POOL} counts as what its process has on GPUs"
    if need <= left:
        return Finding("host memory", OK, found)
    advice = (
        f"Not all of them can be saved at once; add memory, set a smaller {POOL}, or have their hooks "
        "discard what they can."
    )
    return Finding("host memory", WARNING, found, advice)


def _pool(pid: int) -> int | None:
    """Bytes that a process's pool for its offloaded tensors may take; None when it was started without a
    limit: then its pool takes what its tensors need.
    """
    try:
        return int(SIZE.validate_python(environment(pid).get(POOL)))
    except ValueError:
        return None


def saved_runs(settings: AgentSettings) -> list[tuple[str, Saved]]:
    """What agents of this state folder have saved at present, with the runs' names."""
    found: list[tuple[str, Saved]] = []
    for path in sorted(Path(settings.state_dir).glob("*.saved/*/*.json")):
        with suppress(OSError, ValueError, KeyError, TypeError):
            found.append((path.stem.rpartition("@")[0], Saved.read(path.read_text())))
    return found


def _failed(check: str, failure: BackendUnavailable, remedy: str = "") -> Finding:
    return Finding(
        check, CRITICAL, str(failure).removesuffix(failure.advice).strip(), failure.advice or remedy
    )


def _advised(check: str, severity: Severity, why: str) -> Finding:
    """A reason that ends with its remedy, as the preflight words it."""
    found, _, advice = why.partition("; ")
    return Finding(check, severity, found, f"{advice[:1].upper()}{advice[1:]}." if advice else "")
