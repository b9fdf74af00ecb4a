"""The picture that viewers get."""

from __future__ import annotations

import json

from slicelock.model import Picture

REQUEST = {
    **{"id": "r/main/1", "run": "r", "job": "j", "lane": "main", "k": "1", "state": "held", "phase": "train"},
    **{"priority": "-2", "slices": "a b", "members": "2", "joined": "2", "waited_ms": "5", "held_ms": "7"},
    **{"lease_left_ms": "60000", "reason": ""},
}
SLICE = {
    **{"name": "a", "state": "held", "fence": str(1_800_000_000_000 * 1024), "nodes": {"n1": "sim:0 sim:1"}},
    **{"settling": "0", "blocked": {"n1": {"kind": "silent"}}, "kept": "", "holder": REQUEST, "queue": {}},
    **{"queued": "0", "since_ms": "7", "settings": {}},
}
NODE = {
    **{"name": "n1", "beat_age_ms": "12", "silent": "1", "version": "0.1.0", "agent": "b", "slices": "a"},
    "reports": {"a": {"run": "r"}},
}


def test_a_picture_is_read_from_the_scripts_json() -> None:
    raw = {"epoch": "3", "now_ms": "99", "slices": [SLICE], "nodes": [NODE], "gathering": {}}
    picture = Picture.of("pool", json.loads(json.dumps(raw)))
    [one] = picture.slices
    assert (picture.epoch, picture.now_ms, picture.gathering) == (3, 99, ())
    assert one.nodes == {"n1": ("sim:0", "sim:1")}
    assert one.holder is not None
    assert (one.holder.slices, one.holder.priority) == (("a", "b"), -2)
    assert (one.queue, one.settling, one.fence) == ((), False, 1_800_000_000_000 * 1024)
    assert picture.nodes[0].silent


def test_a_free_slice_has_no_holder() -> None:
    raw = {"epoch": "1", "now_ms": "0", "slices": [{**SLICE, "holder": None}], "nodes": {}, "gathering": {}}
    assert Picture.of("pool", raw).slices[0].holder is None


def test_what_others_wrote_is_printable() -> None:
    wild = "x\x1b[2J\ny\x9b\u202e"
    holder = {**REQUEST, "phase": wild, "job": wild, "reason": wild}
    one = {**SLICE, "holder": holder, "nodes": {wild: wild}, "blocked": {wild: {"reason": wild}}}
    node = {**NODE, "name": wild, "version": wild, "reports": {"a": {"loaded": [wild]}}}
    raw = {"epoch": "1", "now_ms": "0", "slices": [one], "nodes": [node], "gathering": [holder]}
    assert str(Picture.of("pool", raw)).isprintable()
    assert "x␛[2J y��" in str(Picture.of("pool", raw))
    assert "\\x1b" not in repr(Picture.of("pool", raw))
