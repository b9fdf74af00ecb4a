"""Asking an endpoint of metrics and health checks."""

from __future__ import annotations

import urllib.error
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

Samples = dict[str, float]


def get(port: int, page: str) -> tuple[int, str]:
    """The status and text of a page."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{page}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def samples(port: int) -> Samples:
    """What is served, by name and labels without the pool: `name{slice=s}`."""
    found: Samples = {}
    for family in text_string_to_metric_families(get(port, "/metrics")[1]):
        for one in family.samples:
            labels = ",".join(
                f"{name}={value}" for name, value in sorted(one.labels.items()) if name != "pool"
            )
            found[f"{one.name}{{{labels}}}"] = one.value
    return found
