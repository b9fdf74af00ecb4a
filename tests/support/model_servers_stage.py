"""Model servers as processes, on a stage with a real agent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slicelock import wire
from slicelock.identity import ProcessIdentity
from tests.support.stage import ROOT, AgentStage, Run
from tests.support.wait import wait_until

SIZE = 20_000


@dataclass
class ServerProcess:
    """A model server in a process of its own, on a device of a node."""

    folder: Path
    kind: str = "vllm"
    device: str = "d"
    traits: Mapping[str, Any] = field(default_factory=dict[str, Any])
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        words = [self.kind, "--device", f"sim:{self.device}", "--bytes", str(SIZE)]
        self.child = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.support.model_servers",
                *words,
                "--traits",
                json.dumps(self.traits),
            ],
            cwd=ROOT,
            env={
                **os.environ,
                "SLICELOCK_JOB": "a",
                "SLICELOCK_SIM_DIR": str(self.folder / "sim"),
            },
            stdout=subprocess.PIPE,
        )
        assert self.child.stdout is not None
        self.url = self.child.stdout.readline().decode().strip()
        self.process = str(ProcessIdentity.of(self.child.pid))

    @property
    def hook(self) -> dict[str, Any]:
        """What agents are told of it."""
        facts = {"kind": self.kind, "url": self.url, "drain": 0.5, "timeout": 0.5, **self.options}
        return {"name": self.kind, "slices": [], "self": False, "residue": 0, "server": facts}

    def tell(self, what: str, **facts: Any) -> dict[str, Any]:
        """Arrange something for the test; returns the server's state."""
        return self._post(f"/test/{what}", facts)

    def question(self, path: str, **facts: Any) -> None:
        """Ask as its framework would."""
        self._post(path, facts)

    def asked(self, path: str) -> list[str]:
        """The questions to a path so far."""
        calls: list[str] = self.tell("state")["calls"]
        return [call for call in calls if call.split()[1].partition("?")[0] == path]

    @property
    def asleep(self) -> list[str]:
        return self.tell("state")["asleep" if self.kind == "vllm" else "released"]

    def _post(self, path: str, facts: Mapping[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(self.url + path, json.dumps(facts).encode())
        with urllib.request.urlopen(request, timeout=10) as answer:
            raw = answer.read()
        return json.loads(raw) if raw else {}

    def close(self) -> None:
        self.child.kill()
        self.child.wait()
        assert self.child.stdout is not None
        self.child.stdout.close()


class ServerWorld:
    """A stage with a run `a` of servers and a run `b` beside it."""

    def __init__(self, stage: AgentStage) -> None:
        self.stage, self.servers = stage, list[ServerProcess]()
        self.b = stage.run("b")

    def serve(self, kind: str = "vllm", device: str = "d", **facts: Any) -> ServerProcess:
        """Start a server; `options` are told to agents, `traits` are its own."""
        self.servers.append(ServerProcess(self.stage.folder / "n1", kind, device, **facts))
        return self.servers[-1]

    def take(self, *, load: bool = True) -> Run:
        """Have the run of all servers take the slice, use its devices, and yield it."""
        self.a = self.stage.run("a")
        self.register()
        self.a.take("s")
        for server in self.servers if load else ():
            server.tell("load")
        self.a.yield_()
        return self.a

    def register(self, **changes: Any) -> None:
        for server in self.servers:
            hook = {**server.hook, **changes}
            self.stage.world.run(wire.Register("a", "a", server.process, os.getuid(), ("s",), [hook]))

    def used(self, device: str = "d") -> int:
        opened = self.stage.device(device)
        used = opened.used
        opened.close()
        return used

    def refused(self) -> str:
        """Have `b` ask in vain; why it does not get the slice."""
        self.b.register("s")
        self.b.ask("s")
        blocked = wait_until(lambda: self.stage.slice().blocked, what="the slice is blocked")
        return str(blocked["n1"]["reason"])

    def records(self) -> list[str]:
        """What the agent has written down of servers."""
        folder = self.stage.folder / "n1" / "state"
        return [path.read_text() for path in folder.glob("*.servers/*")]

    def close(self) -> None:
        for server in self.servers:
            server.close()


def only_hooks(world: ServerWorld, devices: str = "d") -> None:
    """A slice whose runs are moved by their own means or not at all."""
    world.stage.declare("s", {"n1": [f"sim:{device}" for device in devices]}, fallback="hooks")
    world.stage.agent(slices={"s": ",".join(f"sim:{device}" for device in devices)}, hook_deadline="8")
