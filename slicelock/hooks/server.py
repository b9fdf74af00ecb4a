"""The hook for model servers: vLLM and SGLang over HTTP, put to sleep and woken from the job's process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from slicelock.errors import ConfigurationError, RestoreFailed, SnapshotFailed
from slicelock.hooks.moved import Moved, residue
from slicelock.hooks.serving import RESIDUE_GIB, UNDO_S, called, check_refill, in_own_loop, words
from slicelock.servers import HttpClient, Kind, ModelServer, Plan, Sglang, Vllm, VllmHttp, fleet
from slicelock.servers.plan import check_seconds, kind_of, mode_of


class Server:
    """One or more model servers of this job.

    All of them sleep or none: when one cannot be put to sleep, those that were are woken again. What the
    framework had put to sleep itself stays asleep.

    `url`, `others`: their addresses; a warning when they are not of this machine alone, since these endpoints
    ask nobody for a password. `token`: the key of a server that asks for one all the same; it is never shown.
    `mode`: what becomes of requests under way: `wait` for them, `keep` them standing still, `abort` them.
    `drain`, `timeout`, `deadline`: seconds for requests to end, for one answer, and for everything.
    `level`: vLLM's; 1 keeps the weights in host memory, 2 drops them. `tags`: SGLang's, one or several; none:
    all.
    `reload`: fills dropped weights again, between the weights' and the cache's coming back: a callable, plain
    or a coroutine function, called once for all servers; or the name of a method of vLLM's workers.
    `asleep`: needed for SGLang, which cannot be asked: a callable that says whether the framework has
    released the memory itself, or False if it never does.
    `residue_gib`: what the servers keep on each device while they sleep.

    ConfigurationError for what makes no sense. Nothing is asked before the first `offload`.
    """

    def __init__(
        self,
        url: str,
        *others: str,
        kind: str = "vllm",
        level: int = 1,
        mode: str = "wait",
        tags: Sequence[str] = (),
        reload: Callable[[], object] | str | None = None,
        asleep: Callable[[], bool] | bool | None = None,
        drain: float = 30.0,
        timeout: float = 60.0,
        deadline: float = 80.0,
        token: str | None = None,
        residue_gib: float = RESIDUE_GIB,
    ) -> None:
        method, self._refill = (reload, None) if isinstance(reload, str) else ("", reload)
        check_refill(kind_of(kind), level, reload)
        check_seconds("deadline", deadline)
        plans = [
            Plan(
                url=one,
                kind=kind_of(kind),
                level=level,
                mode=mode_of(mode),
                tags=(tags,) if isinstance(tags, str) and tags else tuple(tags),
                reload=method,
                drain=drain,
                timeout=timeout,
            )
            for one in dict.fromkeys((url, *others))
        ]
        self._deadline, self.residue_bytes = deadline, residue(residue_gib)
        self._servers = [self._server(plan, token, asleep) for plan in plans]
        for plan in plans:
            plan.address.warn_of_strangers()

    def offload(self) -> Moved:
        """Have all servers asleep; SnapshotFailed says which is not, and why."""
        failures = in_own_loop(fleet.offload(self._servers, self._deadline, UNDO_S, self._load()))
        if failures:
            raise SnapshotFailed(words(failures))
        return Moved(0)

    def reload(self) -> Moved:
        """Wake those that `offload` has put to sleep; RestoreFailed says which is not awake, and why."""
        failures = in_own_loop(fleet.wake(self._servers, self._deadline, self._load()))
        if failures:
            raise RestoreFailed(words(failures))
        return Moved(0)

    def __repr__(self) -> str:
        return f"Server({', '.join(server.name for server in self._servers)})"

    def _server(self, plan: Plan, token: str | None, asleep: Callable[[], bool] | bool | None) -> ModelServer:
        http = HttpClient(plan.address, plan.timeout, token)
        if plan.kind is Kind.VLLM:
            return Vllm(VllmHttp(http), plan)
        if asleep is None:
            raise ConfigurationError(
                "SGLang does not tell whether its memory is released, and a second release ends it.",
                advice="Give asleep=: a callable that knows, or False if only slicelock releases it.",
            )
        told = asleep
        return Sglang(http, plan, lambda: told() if callable(told) else told, refill=self._refill is not None)

    def _load(self) -> Callable[[], Awaitable[None]] | None:
        refill = self._refill
        return None if refill is None else lambda: called(refill)
