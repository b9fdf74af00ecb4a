"""OpenTelemetry's spans of turns, with the real SDK, which only these tests have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import missing

pytestmark = [pytest.mark.slow, pytest.mark.one_server]

PROGRAM = """
import json, sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)

import slicelock
from slicelock.settings import StoreSettings
from slicelock.store.sync import Store
from slicelock.wire import Declare, Revoke

store = Store(StoreSettings.load())
store.run(Declare("a", {}))
slice_ = slicelock.Slice("a")
with trace.get_tracer("job").start_as_current_span("step"):
    with slice_.turn(phase="train"):
        pass
turn = slice_.acquire()
store.run(Revoke(turn.id, "maintenance"))
assert turn.lost.wait(20)
holder = slice_.acquire()
try:
    slicelock.Slice("a", lane="other").acquire(timeout=0.1)
except slicelock.errors.AcquireTimeout:
    pass
holder.yield_()
store.close()
told = [
    {
        "name": one.name, "id": one.context.span_id, "parent": one.parent and one.parent.span_id,
        "start": one.start_time, "end": one.end_time, "facts": dict(one.attributes),
        "status": one.status.status_code.name, "why": one.status.description,
    }
    for one in exporter.get_finished_spans()
]
print(json.dumps(told))
"""


@pytest.fixture(scope="session")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with OpenTelemetry's SDK: redis-py would load it into every process of the environment."""
    folder = tmp_path_factory.mktemp("otel")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), "opentelemetry-sdk"]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    if done.returncode:
        missing(f"OpenTelemetry's SDK ({done.stderr.strip().splitlines()[-1:]})")
    return folder


@pytest.fixture
def spans(sdk: Path, slicelock_env: dict[str, str]) -> list[dict[str, Any]]:
    """What the program has traced."""
    path = os.pathsep.join([str(sdk), *sys.path])
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


def below(spans: list[dict[str, Any]], parent: dict[str, Any]) -> list[dict[str, Any]]:
    return sorted((one for one in spans if one["parent"] == parent["id"]), key=lambda one: one["start"])


def test_turns_are_traced(spans: list[dict[str, Any]]) -> None:
    step = next(one for one in spans if one["name"] == "step")
    first, revoked, *others = [one for one in spans if one["name"] == "slicelock turn"]
    assert first["parent"] == step["id"] and revoked["parent"] is None
    wait, phase = below(spans, first)
    assert (wait["name"], phase["name"]) == ("slicelock wait", "slicelock phase train")
    assert first["start"] == wait["start"] <= wait["end"] == phase["start"] <= phase["end"] == first["end"]
    assert first["facts"]["slicelock.slices"] == ["a"] and first["facts"]["slicelock.job"] == "job"
    assert first["facts"]["slicelock.fence"] > 0 and first["status"] == "UNSET"
    assert revoked["status"] == "ERROR" and "maintenance" in revoked["why"]
    refused, held = sorted(others, key=lambda one: one["status"])
    assert refused["status"] == "ERROR" and [one["name"] for one in below(spans, refused)] == [
        "slicelock wait"
    ]
    assert held["status"] == "UNSET"
