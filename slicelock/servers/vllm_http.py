"""vLLM's development endpoints. They exist when it was started with VLLM_SERVER_DEV_MODE=1."""

from __future__ import annotations

import re
from collections.abc import Sequence

from slicelock.servers.http import HttpClient, Refused, ServerError
from slicelock.servers.life import life_at
from slicelock.servers.plan import SleepMode

RUNNING = ("vllm:num_requests_running", "vllm:num_requests_waiting")
VERSION = re.compile(r"(\d+)\.(\d+)")


class VllmHttp:
    """The questions to a vLLM server, over HTTP."""

    def __init__(self, http: HttpClient) -> None:
        self._http, self.name = http, str(http.address)

    async def is_sleeping(self) -> bool:
        reply = await self._http.get("/is_sleeping")
        if reply.status == 404:
            raise Refused(
                "it has no sleep mode to ask for: start vLLM with --enable-sleep-mode and "
                "VLLM_SERVER_DEV_MODE=1",
                status=404,
            )
        answer = reply.checked().facts().get("is_sleeping")
        if not isinstance(answer, bool):
            raise ServerError(f"{reply.asked} was answered with {answer!r}, which is neither true nor false")
        return answer

    async def sleep(self, level: int, mode: SleepMode) -> None:
        (await self._http.post("/sleep", {"level": level, "mode": mode})).checked()

    async def wake_up(self, tags: Sequence[str]) -> None:
        (await self._http.post("/wake_up", [("tags", tag) for tag in tags])).checked()

    async def load(self, method: str) -> None:
        (await self._http.post("/collective_rpc", body={"method": method})).checked()

    async def running(self) -> int | None:
        reply = await self._http.get("/metrics")
        lines = [line for line in reply.text.splitlines() if line.startswith(RUNNING)] if reply.ok else []
        counts = [
            float(line.split()[-1]) for line in lines if re.split(r"[{ ]", line, maxsplit=1)[0] in RUNNING
        ]
        return int(sum(counts)) if counts else None

    async def version(self) -> tuple[int, ...]:
        reply = await self._http.get("/version")
        found = VERSION.match(str(reply.facts().get("version", ""))) if reply.ok else None
        return tuple(int(part) for part in found.groups()) if found else ()

    async def life(self) -> str:
        address = self._http.address
        return life_at(address.port) if address.on_this_machine else ""
