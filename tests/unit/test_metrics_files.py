"""Dashboard, rules and code speak of the same metrics; Prometheus' own tool accepts the files."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from slicelock_agent.metrics import FAMILIES

from slicelock.events import Event
from slicelock.metrics.exporter import OWN
from slicelock.metrics.families import Capped, Family, Kind
from slicelock.metrics.pool import GAUGES
from slicelock.metrics.stream import COUNTED, MOST, StreamMetrics

PLACE = Path(__file__).parents[2] / "examples/monitoring"
EVERY = (*GAUGES, *COUNTED, *OWN, *FAMILIES)
SUFFIXES = {Kind.HISTOGRAM: ("_bucket", "_sum", "_count"), Kind.COUNTER: ("",), Kind.GAUGE: ("",)}
LABELS = {name + suffix: one.labels for one in EVERY for name in [one.name] for suffix in SUFFIXES[one.kind]}
BOUNDED = {
    "pool",
    "slice",
    "job",
    "node",
    "state",
    "kind",
    "outcome",
    "step",
    "way",
    "device",
    "version",
    "found_by",
}


def dashboard() -> dict[str, Any]:
    return json.loads((PLACE / "dashboard.json").read_text())


def used(text: str) -> set[str]:
    return set(re.findall(r"\bslicelock_[a-z_]+\b", text))


@pytest.mark.parametrize("name", ["dashboard.json", "alerts.yml", "alerts_test.yml"])
def test_every_metric_that_is_used_exists(name: str) -> None:
    assert used((PLACE / name).read_text()) - LABELS.keys() == set()


def test_selectors_use_labels_that_there_are() -> None:
    for name in ("dashboard.json", "alerts.yml"):
        text = (PLACE / name).read_text().replace('\\"', '"')
        for metric, selector in re.findall(r"\b(slicelock_[a-z_]+)\{([^}]*)\}", text):
            labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\"", selector))
            assert labels <= {*LABELS[metric], "le"}, (metric, labels)


def test_panels_do_not_overlap_and_each_says_something() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken and max(x for x, _ in cells) < 24
        taken |= cells
        assert panel["title"] and all(target["expr"] for target in panel["targets"])
    ids = [panel["id"] for panel in dashboard()["panels"]]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("one", EVERY, ids=lambda one: one.name)
def test_names_and_labels_keep_to_the_conventions(one: Family) -> None:
    assert re.fullmatch(r"slicelock_[a-z]+(_[a-z]+)*", one.name)
    assert one.name.endswith("_total") == (one.kind is Kind.COUNTER)
    assert one.kind is not Kind.HISTOGRAM or (one.name.endswith("_seconds") and len(one.buckets) <= 12)
    assert one.help.endswith(".") and set(one.labels) <= BOUNDED and one.labels[0] == "pool"


def test_names_of_jobs_are_bounded() -> None:
    capped = Capped(2)
    assert [capped(name) for name in ("a", "b", "c", "a", "d")] == ["a", "b", "other", "a", "other"]


def test_forged_events_make_no_metrics_without_end() -> None:
    registry = CollectorRegistry()
    stream = StreamMetrics("p", registry, Capped())
    for n in range(2 * MOST["slice"]):
        word = f"x{n}"
        facts = dict.fromkeys(("slice", "slices", "node", "kind", "outcome", "job"), word)
        steps = json.dumps([{"step": word, "way": word}])
        for kind in ("ready", "blocked", "ended", "silent"):
            stream.take(Event("", kind, 0, {**facts, "steps": steps}))
    for family in registry.collect():
        for label in family.samples[0].labels if family.samples else ():
            assert len({one.labels.get(label) for one in family.samples}) <= MOST.get(label, 100) + 1, label


def test_every_alert_has_its_remedy_in_the_guide() -> None:
    guide = (PLACE.parents[1] / "docs/how-to/monitor.md").read_text().partition("## When an alert comes")[2]
    rows = re.findall(r"^\| (`Slicelock.*?) \|", guide, re.MULTILINE)
    alerts = re.findall(r"- alert: (\w+)", (PLACE / "alerts.yml").read_text())
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(alerts)


@pytest.mark.usefixtures("promtool")
@pytest.mark.parametrize(
    "words",
    [
        ("check", "rules", "alerts.yml"),
        ("test", "rules", "alerts_test.yml"),
        ("check", "config", "prometheus.yml"),
    ],
)
def test_promtool_accepts_the_files(words: tuple[str, ...]) -> None:
    done = subprocess.run(["promtool", *words], cwd=PLACE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
