"""Starts what docker-compose.yml describes as plain processes: the same services, commands, environment,
config files and health checks, with other ports and paths.

What a container has of its own is replaced in every word and in copies of the mounted files: its paths
(volumes, secrets), its port, and the names by which the others reach it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, cast

import yaml

from slicelock import children
from slicelock.embedded import find_server, free_port
from tests.support.wait import wait_until

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docker-compose.yml"
VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")
PORTS = ("6379", "26379")
IMAGE = {"/opt/slicelock/examples": str(ROOT / "examples")}
START_S = 60.0

Facts = dict[str, Any]


def env_file(path: Path) -> dict[str, str]:
    lines = (line.partition("=") for line in path.read_text().splitlines() if not line.startswith("#"))
    return {name: value for name, equals, value in lines if equals}


def changed(text: str, changes: Mapping[str, str]) -> str:
    for old, new in changes.items():
        text = text.replace(old, new)
    return text


def load(variables: Mapping[str, str], changes: Mapping[str, str]) -> Facts:
    """The file with its variables filled in."""

    def fill(found: re.Match[str]) -> str:
        return variables.get(found[1]) or found[2] or ""

    return cast(Facts, yaml.safe_load(changed(VARIABLE.sub(fill, FILE.read_text()), changes)))


@dataclass(eq=False)
class Service:
    """One service as processes of this machine. `port`: what its own one is here."""

    name: str
    facts: Facts
    folder: Path
    ports: dict[str, str]
    process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""


@dataclass(eq=False)
class Stack(children.Block):
    """The services of the active profiles, started in the order in which they depend on each other."""

    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    changes: Mapping[str, str] = field(default_factory=dict[str, str])
    """What the test wants otherwise, to be quick: text of the file and those mounted, and its replacement."""

    def __post_init__(self) -> None:
        self.file = load(self.variables, self.changes)
        active = set(self.variables.get("COMPOSE_PROFILES", "").split(","))
        self.services: dict[str, Service] = {}
        for name, facts in cast(dict[str, Facts], self.file["services"]).items():
            if not (profiles := set(facts.get("profiles", ()))) or profiles & active:
                (own := self.folder / name).mkdir(parents=True)
                self.services[name] = Service(name, facts, own, {port: str(free_port()) for port in PORTS})
        self._ends = ExitStack()
        self._bin = self._programs()

    # ------------------------------------------------------------ starting and looking

    def start(self) -> Self:
        wait_until(self._start_more, START_S, "everything has been started")
        return self

    def close(self) -> None:
        self._ends.close()

    def _start_more(self) -> bool:
        """Start, as an engine does, whatever waits for nothing any more; whether that was the last."""
        waiting = [one for one in self.services.values() if one.process is None]
        for service in waiting:
            if all(self._is_as(*one) for one in service.facts.get("depends_on", {}).items()):
                self._ends.callback(self.kill, service.name)
                self._spawn(service)
        return not waiting

    def _is_as(self, name: str, wanted: Facts) -> bool:
        if self.services[name].process is None:
            return False
        return wanted["condition"] == "service_started" or self.healthy(name)

    def _spawn(self, service: Service) -> None:
        with service.log.open("ab") as log:
            service.process = children.start(
                self.words(service, service.facts["command"]),
                env=self.env(service),
                cwd=service.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def kill(self, name: str) -> None:
        process = self.services[name].process
        if process is not None:
            process.kill()
            process.wait()

    def healthy(self, name: str) -> bool:
        """Run the service's health check, after starting it again if it has ended and is to be restarted."""
        service = self.services[name]
        if service.process is not None and service.process.poll() is not None:
            assert service.facts.get("restart") == "unless-stopped", f"{name} has ended:\n{service.text}"
            self._spawn(service)
        kind, *words = service.facts["healthcheck"]["test"]
        assert kind == "CMD"
        done = subprocess.run(
            self.words(service, words), env=self.env(service), capture_output=True, check=False, timeout=20
        )
        return done.returncode == 0

    def wait_healthy(self, name: str) -> None:
        wait_until(
            lambda: self.healthy(name), START_S, f"{name} is healthy: {self.services[name].text[-2000:]}"
        )

    # ------------------------------------------------------------ a container's words, here

    def words(self, service: Service, words: list[str]) -> list[str]:
        return [self.here(service, word) for word in words]

    def env(self, service: Service) -> dict[str, str]:
        """What the container would have, and nothing of this process but the way to programs and Python."""
        kept = {name: os.environ[name] for name in ("PYTHONPATH", "HOME", "LANG") if name in os.environ}
        given = env_file(ROOT / service.facts["env_file"]) if "env_file" in service.facts else {}
        given |= {name: str(value) for name, value in service.facts.get("environment", {}).items()}
        own = {name: self.here(service, value) for name, value in given.items()}
        return {**kept, "PATH": f"{self._bin}:{os.environ['PATH']}", **own}

    def here(self, service: Service, text: str) -> str:
        """A container's text with this machine's paths, ports and addresses."""
        for other in self.services.values():
            for port, mine in other.ports.items():
                text = re.sub(rf"(?<![\w.-]){other.name}([: ]){port}\b", rf"127.0.0.1\g<1>{mine}", text)
            text = re.sub(rf"(announce-ip\s+){other.name}(?![\w.-])", r"\g<1>127.0.0.1", text)
        for port, mine in service.ports.items():
            text = re.sub(rf"(?<![\d:]){port}\b", mine, text)
        for inside, outside in sorted(self._places(service).items(), key=lambda one: -len(one[0])):
            text = re.sub(rf"(?<![\w/.]){re.escape(inside)}(?![\w.-])", outside, text)
        return text

    def _places(self, service: Service) -> dict[str, str]:
        """Paths inside the container → paths here. Mounted files are copied once, in this machine's words."""
        places = {
            **IMAGE,
            "/dev/shm/slicelock": str(self.folder / "shm"),
            "/run/secrets": str(service.folder / "secrets"),
        }
        for volume in service.facts.get("volumes", ()):
            source, inside, *_ = volume.split(":")
            places[inside] = (
                str(service.folder / "mounted") if source.startswith(".") else str(self.folder / source)
            )
        self._make(service, places)
        return places

    def _make(self, service: Service, places: Mapping[str, str]) -> None:
        if (secrets := service.folder / "secrets").exists():
            return
        secrets.mkdir()
        for name in service.facts.get("secrets", ()):
            shutil.copy(ROOT / self.file["secrets"][name]["file"], secrets / name)
        for volume in service.facts.get("volumes", ()):
            source, inside, *_ = volume.split(":")
            place = Path(places[inside])
            place.mkdir(exist_ok=True)
            for path in (ROOT / source).iterdir() if source.startswith(".") else ():
                text = changed(path.read_text(), self.changes)
                (place / path.name).write_text(self.here(service, text))

    def _programs(self) -> Path:
        """The programs of the images, by their names there."""
        folder = self.folder / "bin"
        folder.mkdir()
        programs = {
            "valkey-server": f"{find_server()}",
            "valkey-cli": f"{shutil.which('valkey-cli') or shutil.which('redis-cli')}",
            "python": sys.executable,
            "slicelock": f"{sys.executable} -m slicelock",
            "slicelock-agent": f"{sys.executable} -m slicelock_agent",
        }
        for name, command in programs.items():
            (folder / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
            (folder / name).chmod(0o755)
        return folder
