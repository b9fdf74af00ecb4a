"""Which run and which member this process is, by its settings and by what its launcher says."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import time
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

from slicelock.errors import ConfigurationError
from slicelock.identity import ProcessIdentity
from slicelock.keys import NAME
from slicelock.protocol import Who
from slicelock.settings import Settings
from slicelock.shortage import explained
from slicelock.words import whole

RUN_VARIABLE = "SLICELOCK_RUN"
NO_RENDEZVOUS = ("", "none")  # torchrun's run id when no --rdzv-id was given


@dataclass(frozen=True, slots=True)
class Launch:
    """What the launcher says: this process's rank, and of how many; empty and 1 without a launcher."""

    rank: str = ""
    size: int = 1

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Launch:
        """Ask torchrun, Slurm (only a step has ranks), Open MPI and PMI, in this order."""
        pairs = [("RANK", "WORLD_SIZE")]
        if _slurm_step(environ):
            pairs.append(("SLURM_PROCID", "SLURM_NTASKS"))
        pairs += [("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE")]
        for rank, size in pairs:
            members = whole(environ.get(size, ""))
            if members is not None and whole(environ.get(rank, "")) is not None:
                return cls(environ[rank], max(members, 1))
        return cls()


def who_am_i(settings: Settings, environ: MutableMapping[str, str]) -> Who:
    """This process as a member of a run. A run that nobody has named is named here, for children to inherit.

    Raises ConfigurationError, naming the variable, when the job, the rank or the common run is not known.
    """
    job, launch = settings.job_name(), Launch.of(environ)
    members = launch.size if settings.members == "auto" else int(settings.members)
    member = settings.member or launch.rank
    if members > 1 and not member:
        raise ConfigurationError(
            f"SLICELOCK_MEMBERS is {members}, but nothing says which of them this process is.",
            advice="Set SLICELOCK_MEMBER to another name in each, or start them with torchrun or srun.",
        )
    run = settings.run or _launchers_run(environ)
    if run is None:
        run = _minted(job, members, environ)
    return Who(
        run=run,
        job=job,
        member=member or "0",
        members=members,
        process=_identity(),
        uid=os.getuid(),
        lease_ms=round(settings.lease * 1000),
        wait_ms=round(settings.wait_lease_s * 1000),
        poll_s=settings.poll_s,
        launched=launch.size,
    )


def _minted(job: str, members: int, environ: MutableMapping[str, str]) -> str:
    if members > 1:
        raise ConfigurationError(
            f"SLICELOCK_MEMBERS is {members}, but the processes have no common run to meet in.",
            advice=f"Set {RUN_VARIABLE} to the same new name in all of them, or start them with a launcher.",
        )
    run = f"{job[:36]}-{time.strftime('%m%d-%H%M%S')}-{secrets.token_hex(4)}"
    environ[RUN_VARIABLE] = run
    return run


def _launchers_run(environ: Mapping[str, str]) -> str | None:
    if "TORCHELASTIC_RUN_ID" in environ:
        restarts = environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        return short_name(f"{_rendezvous(environ)}-{restarts}")
    if step := _slurm_step(environ):
        requeued = environ.get("SLURM_RESTART_COUNT", "")
        return short_name(f"slurm-{environ['SLURM_JOB_ID']}-{step}" + (f"-{requeued}" if requeued else ""))
    return None


def _rendezvous(environ: Mapping[str, str]) -> str:
    given = environ["TORCHELASTIC_RUN_ID"]
    if given not in NO_RENDEZVOUS:
        return given
    if environ.get("LOCAL_WORLD_SIZE") != environ.get("WORLD_SIZE"):
        raise ConfigurationError(
            "torchrun was started on several nodes without --rdzv-id, so this run has no name of its own.",
            advice=f"Give torchrun a new --rdzv-id for each launch, or set {RUN_VARIABLE}.",
        )
    launcher = _identity(os.getppid())  # all workers of one node have the same parent
    return f"torchrun-{hashlib.sha1(launcher.encode(), usedforsecurity=False).hexdigest()[:12]}"


def _identity(pid: int | None = None) -> str:
    """This process's, or another one's."""
    whose = "This process" if pid is None else f"The process {pid}"
    with explained(f"{whose} cannot be told from others", "Look whether /proc is mounted, with all of it."):
        return str(ProcessIdentity.of() if pid is None else ProcessIdentity.of(pid))


def _slurm_step(environ: Mapping[str, str]) -> str:
    if "SLURM_JOB_ID" not in environ:
        return ""
    return environ.get("SLURM_STEP_ID", environ.get("SLURM_STEPID", ""))


def short_name(text: str) -> str:
    """`text` as a name; one that had to be changed or cut keeps a hash, so that it stays unique."""
    if NAME.fullmatch(text):
        return text
    digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:12]
    return f"{re.sub(r'[^A-Za-z0-9._-]', '-', text).lstrip('._-')[:50] or 'run'}-{digest}"
