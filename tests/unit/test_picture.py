"""The picture that viewers get."""

from __future__ import annotations

import json

import pytest

from slicelock.errors import StoreError
from slicelock.picture import STATES, Picture
from slicelock.states import SliceState

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


@pytest.mark.parametrize(
    ("place", "field", "value"),
    [
        *(("slice", "settings", value) for value in ([1], "x", 7)),
        *(("slice", "blocked", value) for value in ([1], 5, {"n1": "x"})),
        *(("slice", "fence", value) for value in ("x", None, [1])),
        *(("slice", "state", value) for value in ("odd", None)),
        *(("slice", "nodes", value) for value in ("x", {"n1": 5})),
        *(("request", name, "x") for name in ("k", "priority", "members", "waited_ms")),
        *(("request", name, None) for name in ("slices", "k")),
        ("node", "beat_age_ms", "x"),
        ("node", "slices", 5),
        *(
            ("node", "reports", {"a": report})
            for report in (
                *("[1]", "5", "{", "", "[" * 99_999, '{"loaded": 5}', '{"saved": "x"}', '{"devices": [1]}'),
                *('{"devices": {"d": 5}}', '{"devices": {"d": {"used": "x"}}}', '{"progress": 3}'),
            )
        ),
    ],
)
def test_a_record_that_makes_no_sense_is_left_out_and_named(place: str, field: str, value: object) -> None:
    bad = {"slice": SLICE, "request": REQUEST, "node": NODE}[place] | {field: value}
    if place == "request":
        views = {"slices": [SLICE | {"holder": bad, "queue": [bad]}], "nodes": [], "gathering": [bad]}
    else:
        views = {"slices": [], "nodes": [], "gathering": [], f"{place}s": [bad]}
    picture = Picture.of("pool", json.loads(json.dumps({"epoch": "1", "now_ms": "0", **views})))
    assert list(picture.senseless) == [f"{place} {bad.get('name', 'r/main/1')}"]
    assert all(picture.senseless.values())
    assert (picture.nodes, picture.gathering) == ((), ())
    assert [(one.holder, one.queue) for one in picture.slices] == ([(None, ())] if place == "request" else [])


def test_a_field_that_is_missing_is_named() -> None:
    bad = {name: value for name, value in SLICE.items() if name != "fence"}
    picture = Picture.of("pool", {"epoch": "1", "now_ms": "0", "slices": [bad], "nodes": {}, "gathering": {}})
    assert picture.senseless == {"slice a": "it has no 'fence'"}


def test_a_pool_whose_own_record_makes_no_sense_is_an_error_that_names_it() -> None:
    raw = {"epoch": "x", "now_ms": "0", "slices": {}, "nodes": {}, "gathering": {}}
    with pytest.raises(StoreError, match="record meta of pool p makes no sense"):
        Picture.of("p", raw)


def test_nobody_has_waited_for_less_than_nothing() -> None:
    """Redis' clock may have been ahead for a moment."""
    ahead = REQUEST | {"waited_ms": "-5", "held_ms": "-7"}
    one = SLICE | {"holder": ahead, "since_ms": "-9"}
    raw = {"epoch": "1", "now_ms": "0", "slices": [one], "nodes": {}, "gathering": {}}
    [seen] = Picture.of("p", raw).slices
    assert seen.holder is not None
    assert (seen.holder.waited_ms, seen.holder.held_ms, seen.since_ms) == (0, 0, 0)


def test_it_knows_the_states_of_slices() -> None:
    assert set(SliceState) == STATES
