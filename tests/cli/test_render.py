"""What a pool looks like."""

from __future__ import annotations

import ast
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from slicelock.cli import render
from slicelock.cli.console import show
from slicelock.picture import NodeView, Picture, RequestView, SliceView

HOLDER = RequestView(
    id="r1/main/3",
    run="r1",
    job="grpo-a",
    lane="main",
    k=3,
    state="held",
    phase="train",
    priority=0,
    slices=("trainers",),
    members=1,
    joined=1,
    waited_ms=40,
    held_ms=12_300,
    lease_left_ms=48_000,
    reason="",
)
WAITERS = tuple(
    replace(HOLDER, id=f"r{n}/main/1", run=f"r{n}", job=f"job-{n}", state="queued", waited_ms=n * 1000)
    for n in range(2, 7)
)
SLICE = SliceView(
    name="trainers",
    state="held",
    fence=7,
    nodes={"gpu1": ("0", "1")},
    settling=False,
    blocked={},
    kept="",
    holder=HOLDER,
    queue=WAITERS,
    queued=5,
    since_ms=12_300,
)
NODE = NodeView(
    name="gpu1",
    beat_age_ms=250,
    silent=False,
    version="1.2.3",
    agent="b",
    slices=("trainers",),
    reports={"trainers": {"loaded": ["r1"], "saved": ["r2", "r3"]}},
)
PICTURE = Picture(pool="default", epoch=1, now_ms=0, slices=(SLICE,), nodes=(NODE,), gathering=())


def drawn(seen: Picture, width: int = 160) -> str:
    out = StringIO()
    Console(file=out, width=width, highlight=False).print(render.picture(seen))
    return out.getvalue()


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (850, "850 ms"),
        (12_340, "12.3 s"),
        (245_000, "4m 05s"),
        (12_000_000, "3h 20m"),
        (187_200_000, "2d 04h"),
    ],
)
def test_durations_are_short(ms: float, text: str) -> None:
    assert render.duration(ms) == text


def test_a_slice_shows_who_has_it_and_who_waits() -> None:
    text = drawn(PICTURE)
    for part in ("trainers", "held 12.3 s", "grpo-a train", "lease 48.0 s", "r1/main/3", "gpu1: 0 1"):
        assert part in text
    assert "5: job-2 2.0 s, job-3 3.0 s, job-4 4.0 s, …" in text


def test_a_node_shows_its_agent_and_what_is_on_it() -> None:
    text = drawn(PICTURE)
    for part in ("1.2.3", "250 ms ago", "trainers: r1", "trainers: r2 r3"):
        assert part in text


def test_a_silent_node_and_one_never_heard_of_stand_out() -> None:
    nodes = (replace(NODE, silent=True, beat_age_ms=15_000), replace(NODE, name="gpu2", beat_age_ms=-1))
    text = drawn(replace(PICTURE, nodes=nodes))
    assert "silent" in text and "15.0 s ago" in text and "never heard of" in text


def test_problems_say_why() -> None:
    ill = replace(
        SLICE,
        state="free",
        holder=None,
        queue=(),
        queued=0,
        settling=True,
        kept="r9/main/1",
        blocked={"gpu1": {"kind": "silent", "reason": "node gpu1 is silent"}},
    )
    text = drawn(replace(PICTURE, slices=(ill,)))
    assert "trainers is blocked on gpu1: node gpu1 is silent" in text
    assert "trainers settles" in text and "trainers is kept for r9/main/1" in text


def test_requests_that_gather_are_shown() -> None:
    one = replace(HOLDER, state="gathering", members=4, joined=3)
    assert "3 of 4" in drawn(replace(PICTURE, gathering=(one,)))


def test_an_empty_pool_says_what_to_do() -> None:
    text = drawn(replace(PICTURE, slices=(), nodes=()))
    assert "Pool default has no slices" in text and "slicelock slice declare" in text


def test_an_agentless_slice_says_so() -> None:
    assert "agentless" in drawn(replace(PICTURE, slices=(replace(SLICE, nodes={}),)))


def test_names_are_not_taken_for_markup() -> None:
    odd = replace(HOLDER, phase="[red]", reason="[/]")
    assert "[red]" in drawn(replace(PICTURE, slices=(replace(SLICE, holder=odd),)))


def test_gpus_show_their_memory() -> None:
    devices = {"GPU-1b2c3d4e-5f": {"used": 3 << 30, "total": 140 << 30, "busy": 97}, "sim:0": {"used": 1}}
    node = replace(NODE, reports={"trainers": {"devices": devices}})
    text = drawn(replace(PICTURE, nodes=(node,)))
    assert "GPU-1b2c3d4e 3.0 of 140.0 GiB, 97 % busy" in text
    assert "sim:0" not in text
    assert "memory" not in drawn(PICTURE)


LONG = (
    "llama-3-70b-instruct-grpo-2026-11-30T06.29.34-a100-cluster-eu-we"  # 64 characters, as many as a name has
)


def test_long_names_do_not_break_the_table_of_a_small_terminal() -> None:
    request = replace(HOLDER, run=LONG, job=LONG, id=f"{LONG}/main/12")
    queue = tuple(replace(request, id=f"{LONG}/main/{n}", state="queued") for n in range(5))
    sliced = [replace(SLICE, name=name, holder=request, queue=queue) for name in ("trainers", "samplers")]
    node = replace(NODE, reports={"trainers": {"loaded": [LONG], "saved": [LONG, LONG]}})
    seen = replace(PICTURE, slices=tuple(sliced), nodes=(node,), gathering=(request,))
    lines = drawn(seen, width=80).splitlines()
    assert len(lines) <= 23 and max(map(len, lines)) <= 80
    assert sum("llama-…eu-we/main/12" in line for line in lines) == 3, "the id, whole on a line of its own"
    assert f"{LONG}/main/12" in drawn(seen), "where there is room nothing is cut"


@pytest.mark.parametrize(
    ("name", "longest", "cut"),
    [
        ("short", 20, "short"),
        ("abcdefghij", 0, "abcdefghij"),
        ("abcdefghij", 7, "abc…hij"),
        ("abcdefghij", 6, "abc…ij"),
    ],
)
def test_a_name_is_cut_in_the_middle(name: str, longest: int, cut: str) -> None:
    assert render.cut(name, longest) == cut
    assert not longest or len(cut) <= longest


def test_names_are_no_markup() -> None:
    name = "[red]a[/b]:smile:"
    one = replace(SLICE, name=name, nodes={name: (name,)}, holder=replace(HOLDER, job=name))
    node = replace(NODE, name=name, reports={name: {"loaded": [name]}})
    text = drawn(replace(PICTURE, slices=(one,), nodes=(node,), gathering=(replace(HOLDER, id=name),)), 400)
    assert text.count(name) >= 8


def test_a_console_takes_texts_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    show("[red]a[/b]:smile:")
    assert capsys.readouterr().out == "[red]a[/b]:smile:\n"


@pytest.mark.parametrize("word", ["markup", "emoji"])
def test_no_console_reads_more_into_a_text(word: str) -> None:
    for file in Path(render.__file__).parents[1].rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Console":
                given = {one.arg: ast.unparse(one.value) for one in node.keywords}
                assert given.get(word) == "False", f"{file}:{node.lineno}"
