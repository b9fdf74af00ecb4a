"""Every setting, from `SLICELOCK_*` variables and a `.env` file. A setting's docstring is its reference
text."""

from __future__ import annotations

import os
import re
import socket
from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, ByteSize, Field, SecretStr, field_validator, model_validator
from pydantic_settings import NoDecode

from slicelock.errors import ConfigurationError
from slicelock.keys import check_name
from slicelock.logs import LogFormat, LogLevel
from slicelock.shortage import remedy
from slicelock.variables import PREFIX, Variables
from slicelock.words import clean, whole

WAYS = ("hooks", "cuda", "kill")
"""All ways to evict a run, the gentlest first. `cuda`: from outside, whatever the device, so that
for simulated ones it is the simulation's own way."""
LONGEST_SILENCE_S = 60.0
"""As `MAX_SILENT` in `lua/include/limits.lua` (in ms there)."""


LONGEST_SECRET = 65_536


def _possible(path: Path) -> Path:
    if "\0" in str(path):
        raise ValueError(f"{str(path)!r} has a null byte, as no path can; correct it")
    return path


Place = Annotated[Path, AfterValidator(_possible)]
"""A path that a setting names."""


class Mode(StrEnum):
    """What `Slice` does."""

    ON = "on"
    OFF = "off"
    OBSERVE = "observe"
    ALWAYS_EVICT = "always-evict"


class StoreSettings(Variables):
    """How to reach Redis."""

    without_url: ClassVar[str] = (
        "Set it (for example redis://localhost:6379/0), or use the exports that `slicelock up` prints"
    )
    """What to do when there is no URL."""

    redis_url: SecretStr | None = None
    """Where Redis is: `redis://[user:password@]host:port/db`, `rediss://…`, `unix:///path`, or
    `redis+sentinel://[user:password@]host:26379,host:26379,host:26379/name/db` (`rediss+sentinel://…`) for a
    primary that Sentinels know by `name`. Required unless the mode is `off` or `observe`, or `sentinels` is
    set."""
    redis_user: str | None = None
    """The user of Redis, where the URL has none."""
    redis_password: SecretStr | None = None
    """The password for Redis, where the URL has none."""
    redis_password_file: Place | None = None
    """Instead of `redis_password`: a file with the password, as Docker, Kubernetes and systemd hand secrets
    out. It stays out of the environment."""
    sentinels: str | None = None
    """Instead of the URL: the Sentinels, as `host:26379,host:26379,host:26379`."""
    sentinel_name: str = "mymaster"
    """With `sentinels`: the name by which they know the primary."""
    sentinel_db: Annotated[int, Field(ge=0)] = 0
    """With `sentinels`: the number of the database."""
    sentinel_tls: bool = False
    """With `sentinels`: TLS, to them and to Redis. It is also used when `tls_ca` or `tls_cert` is set."""
    sentinel_user: str | None = None
    """The user of the Sentinels, if they have passwords of their own."""
    sentinel_password: SecretStr | None = None
    """The password for the Sentinels. Redis' password is not used for them."""
    sentinel_password_file: Place | None = None
    """Instead of `sentinel_password`: a file with the password."""
    tls_ca: Place | None = None
    """For `rediss`: the file with the certificates that the servers' are checked against. Default: the
    system's."""
    tls_cert: Place | None = None
    """For `rediss`: this side's certificate, where the servers ask for one."""
    tls_key: Place | None = None
    """The key of `tls_cert`."""
    pool: str = "default"
    """The coordination domain: slices that may be granted together. Everything of one pool lives under one
    key prefix."""
    store_timeout: Annotated[float, Field(gt=0, le=60)] = 5.0
    """Seconds to wait for Redis to connect or to answer one call."""

    wait_replicas: Annotated[int, Field(ge=0, le=9)] | None = None
    """How many replicas must confirm a grant of an agentless slice before it counts; 0: none. Default: 1 with
    Sentinels or where the primary has replicas, else 0."""

    @model_validator(mode="before")
    @classmethod
    def _secrets(cls, given: dict[str, object]) -> dict[str, object]:
        for name in ("redis_password", "sentinel_password"):
            if path := given.get(f"{name}_file"):
                if given.get(name):
                    variable = f"{PREFIX}{name.upper()}"
                    raise ValueError(f"{variable} and {variable}_FILE are both set; remove one of them")
                given = {**given, name: _secret(name, Path(str(path)))}
        return given

    @field_validator("redis_user", "redis_password", "sentinel_user", "sentinel_password", "sentinel_name")
    @classmethod
    def _texts(cls, value: SecretStr | str | None) -> SecretStr | str | None:
        try:
            (value.get_secret_value() if isinstance(value, SecretStr) else value or "").encode()
        except UnicodeEncodeError:
            raise ValueError("its value is not UTF-8 text, as Redis takes it; set it as such") from None
        return value

    @field_validator("pool")
    @classmethod
    def _pool(cls, value: str) -> str:
        return _checked_name("pool", value)

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.redis_url is not None and self.sentinels is not None:
            raise ValueError("SLICELOCK_REDIS_URL and SLICELOCK_SENTINELS are both set; remove one of them")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("SLICELOCK_TLS_CERT and SLICELOCK_TLS_KEY go together; set both or none")
        for kind, user, password in (
            ("REDIS", self.redis_user, self.redis_password),
            ("SENTINEL", self.sentinel_user, self.sentinel_password),
        ):
            if user is not None and password is None:
                raise ValueError(f"SLICELOCK_{kind}_USER is set without SLICELOCK_{kind}_PASSWORD; set both")
        return self

    def url(self) -> str:
        """The Redis URL; ConfigurationError when it is not set."""
        if self.sentinels is not None:
            tls = "s" if self.sentinel_tls or self.tls_ca or self.tls_cert else ""
            return f"redis{tls}+sentinel://{self.sentinels}/{self.sentinel_name}/{self.sentinel_db}"
        if self.redis_url is None:
            raise ConfigurationError(
                "SLICELOCK_REDIS_URL is not set, so slicelock does not know its Redis.",
                advice=f"{self.without_url}.",
            )
        return self.redis_url.get_secret_value()


def _secret(name: str, path: Path) -> str:
    """A file's text without the line's end that editors leave."""
    try:
        with path.open(encoding="utf-8") as file:  # a part: what is no file, as /dev/zero, need not end
            secret = file.read(LONGEST_SECRET + 1).rstrip("\r\n")
    except UnicodeDecodeError:
        why = "is not UTF-8 text, as Redis takes it; write it as such"
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        told = getattr(error, "strerror", None) or str(error)
        why = f"cannot be read: {told}. {remedy(told) or 'Correct the path.'}".rstrip(".")
    else:
        if 0 < len(secret) <= LONGEST_SECRET:
            return secret
        why = f"is {'too long to hold a password' if secret else 'empty'}; write the password into it"
    raise ValueError(f"{PREFIX}{name.upper()}_FILE: {clean(str(path))} {why}")


def _checked_name(kind: str, value: str) -> str:
    try:
        return check_name(kind, value)
    except ConfigurationError as error:
        raise ValueError(str(error).rstrip(".")) from None


AGENT_METRICS, POOL_METRICS = "127.0.0.1:9464", "127.0.0.1:9465"
"""Where agents and the exporter serve metrics, if one does as the documentation says."""


def listening_at(text: str, example: str) -> tuple[str, int]:
    """Read `HOST:PORT`, or a port of the loopback; ValueError, which gives the example, for anything else."""
    match = re.fullmatch(r"(?:(?P<host>\[[^][/]+\]|[^][/]+):)?(?P<port>[0-9]+)", text)
    port = whole(match["port"]) if match else None
    if match is None or port is None or port >= 65_536:
        raise ValueError(f"{text!r} is not HOST:PORT, nor a port; for example {example}")
    return (match["host"] or "127.0.0.1").strip("[]"), port


class LogSettings(Variables):
    """What is logged, and how."""

    log_format: LogFormat = LogFormat.TEXT
    """How log lines look: `text` (a word, and facts as key=value) or `json` (an object for each line)."""
    log_level: LogLevel | None = None
    """From which level on lines go to standard error: `debug`, `info` (each transition), `warning` or
    `error`. Default: `info` for agents; jobs leave it to the program's own `logging`, which shows warnings
    unless it is told otherwise."""


class Settings(StoreSettings, LogSettings):
    """What a job's process needs to know."""

    without_url: ClassVar[str] = (
        f"{StoreSettings.without_url}, or set SLICELOCK_MODE=off to run without taking turns"
    )
    mode: Mode = Mode.ON
    """`on` takes turns; `off` makes every turn a no-op; `observe` measures phases without Redis and prints
    what sharing would gain; `always-evict` takes an empty turn after each of the job's, so that its state
    is moved every time."""
    job: str | None = None
    """The experiment's name. Required unless the mode is `off` or `observe`."""
    run: str | None = None
    """The launch's name. Default: the launcher's (torchrun, Slurm), else made by the first process and
    inherited."""
    member: str | None = None
    """Which member of the run this process is. Default: the launcher's rank, else 0."""
    members: str = "1"
    """How many processes take part in each turn: a number, or `auto` for the launcher's world size."""
    lane: str = "main"
    """The lane whose turns this process takes unless `Slice` says otherwise."""
    priority: Annotated[int, Field(ge=-10, le=10)] = 0
    """A head start in the queue: 30 s of waiting for each step."""
    lease: Annotated[float, Field(ge=0.5, le=86_400)] = 60.0
    """Seconds after which a turn ends whose process is no longer heard of."""
    renew: Annotated[float, Field(gt=0, le=5)] = 5.0
    """Seconds between two heartbeats; a process not heard of for 12 s may be replaced."""
    wait_lease: Annotated[float, Field(gt=0)] = 15.0
    """Seconds after which a waiting request ends whose process is no longer heard of; never more than
    `lease`."""
    poll: Annotated[float, Field(gt=0)] = 3.0
    """Seconds after which a waiter asks again although no message came; never more than a third of
    `lease`."""
    host_pool: Annotated[ByteSize, Field(gt=0)] | None = None
    """The most host memory that this process pins for its offloaded tensors, for example `64GiB`. Default:
    what the machine can give, less a reserve of 8 GiB or a tenth, which a limit may use up."""

    no_nccl: bool = False
    """Says that this process has no NCCL group whenever it has yielded, so that the driver may save it
    together with others. Agents read it (as `1` or `true`) from the environment that the process was started
    with, not from `.env`."""

    @field_validator("job", "run", "member", "lane")
    @classmethod
    def _names(cls, value: str | None) -> str | None:
        return None if value is None else _checked_name("This", value)

    @field_validator("members")
    @classmethod
    def _members(cls, value: str) -> str:
        if value != "auto" and not whole(value):
            raise ValueError(f"{value!r} is not a number of members; use 1 or more, or `auto`")
        return value

    @model_validator(mode="after")
    def _relations(self) -> Self:
        if self.renew * 2 > self.lease:
            raise ValueError(
                f"SLICELOCK_RENEW ({self.renew:g} s) must be at most half "
                f"of SLICELOCK_LEASE ({self.lease:g} s)"
            )
        return self

    @property
    def wait_lease_s(self) -> float:
        """The waiting lease in force, in seconds."""
        return min(self.wait_lease, self.lease)

    @property
    def poll_s(self) -> float:
        """The polling interval in force, in seconds."""
        return min(self.poll, self.lease / 3, self.wait_lease_s / 3)

    def job_name(self) -> str:
        """The job's name; ConfigurationError when it is not set."""
        if self.job is None:
            raise ConfigurationError(
                "SLICELOCK_JOB is not set, so slicelock does not know this experiment's name.",
                advice="Set it to a name of your choice, for example SLICELOCK_JOB=my-experiment.",
            )
        return self.job


def _default_state_dir() -> Path:
    if os.geteuid() == 0:
        return Path("/var/lib/slicelock")
    try:
        return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "slicelock"
    except RuntimeError:
        raise ConfigurationError(
            f"User {os.geteuid()} has no home folder, so an agent does not know where to keep its journal.",
            advice="Set SLICELOCK_STATE_DIR to a folder that outlives the agent.",
        ) from None


def _default_sim_dir() -> Path:
    return Path(f"/dev/shm/slicelock-{os.geteuid()}")


class SimSettings(Variables):
    """The simulated accelerator."""

    sim_dir: Place = Field(default_factory=_default_sim_dir)
    """The folder with the simulated devices; it must be in shared memory (`/dev/shm`). Default:
    `/dev/shm/slicelock-<uid>`."""
    sim_capacity: Annotated[int, Field(ge=65_536)] = 32 * 1024 * 1024
    """Bytes of memory of a simulated device that does not exist yet."""
    sim_device: str = "sim:0"
    """The simulated device that a job uses."""


class AgentSettings(StoreSettings, SimSettings, LogSettings):
    """What an agent needs to know."""

    node: str = Field(default_factory=lambda: socket.gethostname().split(".")[0] or "node")
    """This machine's name in the pool. Default: the host name."""
    state_dir: Place = Field(default_factory=_default_state_dir)
    """The folder with the agent's journal; it must outlive the agent, not the machine."""
    beat: Annotated[float, Field(gt=0, le=10)] = 1.0
    """Seconds between two beats."""
    silent: Annotated[float, Field(gt=0)] = 10.0
    """Seconds without a beat after which a node counts as silent and its slices are blocked; at most 60."""
    hook_deadline: Annotated[float, Field(gt=0)] = 120.0
    """Seconds that a process has to run its hooks before the next way is tried."""
    fallback: Annotated[tuple[str, ...], NoDecode] = ("hooks", "cuda")
    """What may move a run's state off a device, in order: `hooks`, `cuda` (from outside, whatever
    the device: the driver, or the simulation), `kill`, separated by commas. `kill` must be asked for."""
    cuda_checkpoint: Place | None = None
    """The program `cuda-checkpoint`, by its path or its name in PATH, to save and restore GPU processes
    with it. Default: the driver is called directly, through `cuda-bindings`."""
    min_free: Annotated[ByteSize, Field(ge=0)] = ByteSize(0)
    """Memory that must be free on each device before a run's first turn begins, for example `40GiB`: for
    engines that size themselves by what they find free. A slice's own setting wins."""
    zero_residue: bool = False
    """Whether what hooks leave on a GPU (contexts, graphs) is saved by the driver as well, so that nothing
    of a run stays. A slice's own setting wins."""
    allow_uids: Annotated[tuple[int, ...], NoDecode] = ()
    """The users whose processes this agent may touch, separated by commas. Default: the agent's own user;
    for root, everyone."""

    metrics: str | None = None
    """Where the agent serves `/metrics`, `/healthz` and `/readyz`: `HOST:PORT`, or a port of the loopback.
    Default: nowhere. Needs `pip install 'slicelock[metrics]'`."""

    @field_validator("metrics")
    @classmethod
    def _metrics(cls, value: str | None) -> str | None:
        if value is not None:
            listening_at(value, AGENT_METRICS)
        return value

    @field_validator("node")
    @classmethod
    def _node(cls, value: str) -> str:
        return _checked_name("node", value)

    @field_validator("fallback", mode="before")
    @classmethod
    def _fallback(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        ways = tuple(part.strip() for part in value.split(","))
        if unknown := set(ways).difference(WAYS):
            raise ValueError(f"{clean(', '.join(sorted(unknown)))} is not among {', '.join(WAYS)}")
        return ways

    @field_validator("allow_uids", mode="before")
    @classmethod
    def _uids(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        users = {part.strip(): whole(part.strip()) for part in value.split(",") if part.strip()}
        if wrong := [user for user, number in users.items() if number is None]:
            raise ValueError(f"{clean(', '.join(wrong))} is no user's number; use numbers, as `id -u` prints")
        return tuple(users.values())

    @model_validator(mode="after")
    def _relations(self) -> Self:
        if not self.silent <= LONGEST_SILENCE_S:
            raise ValueError(
                f"SLICELOCK_SILENT: {self.silent:g} s are too long, since whoever takes a node over "
                f"waits for it; use {LONGEST_SILENCE_S:g} or less"
            )
        if self.beat * 2 > self.silent:
            raise ValueError(
                f"SLICELOCK_BEAT ({self.beat:g} s) must be at most half "
                f"of SLICELOCK_SILENT ({self.silent:g} s)"
            )
        return self
