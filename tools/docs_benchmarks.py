"""The tables of measured figures, from the JSON that the benches printed, kept beside the page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from docs_markdown import code, table

MEASURED = Path(__file__).resolve().parent.parent / "docs" / "reference" / "benchmarks.json"
HEAD = ("what", "figure", "floor, same run", "ratio", "goal", "")
Facts = dict[str, Any]
Row = Sequence[str]


def of_part(name: str) -> str:
    """One part of the page."""
    facts: Facts = json.loads(MEASURED.read_text(encoding="utf-8"))
    return PARTS[name](facts)


def machine(facts: Facts) -> str:
    """What it was measured on."""
    return table(("what", "which"), facts["machine"].items())


def _measured(facts: Facts, part: str, *by: str) -> str:
    """When figures were measured, and by which command or tests."""
    return f"Measured on {facts['measured'][part]} by {', '.join(map(code, by))}.\n\n"


def swap(facts: Facts) -> str:
    """`bench swap`."""
    figures = facts["swap"]
    command = f"slicelock bench swap --gib {figures['gib']:g} --cycles {_cycles(figures)} --json"
    return _measured(facts, "swap", command) + table(HEAD, _swap_rows(figures))


def _cycles(swap: Facts) -> int:
    return len(swap["torch_offload"]["all_out_s"]) - 1  # the first one is beside them


def _swap_rows(swap: Facts) -> Iterator[Row]:
    floor, goals, hook = swap["floor"], swap["goals"], swap["torch_offload"]
    for way, verb in (("out", "offload"), ("in", "reload")):
        moved = _moved(hook[f"{way}_s"], hook[f"{way}_gb_s"])
        least = _moved(floor[f"{way}_s"], floor[f"{way}_gb_s"])
        yield f"`TorchOffload` {way}", moved, least, *_against(goals[f"{verb}, of the floor's speed"], 0.9)
    first = goals["first offload, of the floor's speed"]
    yield "the first out", f"{hook['first_out_s']:.3f} s", f"{floor['out_s']:.3f} s", *_against(first, 0.9)
    both = f"{floor['both_s']:.3f} s (both ways at once)"
    for name, goal, limit in (("fitting", "both fit", 1.15), ("filling", "filling up", 1.35)):
        seconds = swap[f"overlapped_{name}_s"]["median"]
        ratio = goals[f"overlapped, {goal}, to the duplex floor"]
        yield f"two runs overlapped, {goal}", f"{seconds:.3f} s", both, *_against(ratio, limit, at_most=True)
    yield "two runs one after the other", f"{swap['in_turn_s']['median']:.3f} s", both, "", "", ""
    saver = swap["memory_saver"]
    for way in ("out", "in"):
        yield f"`MemorySaver` {way}, later", _moved(saver[f"{way}_s"], saver[f"{way}_gb_s"]), "", "", "", ""
    yield "`MemorySaver`, the first out", f"{saver['first_out_s']:.1f} s", "", "", "", ""
    driver = swap["driver"]
    for way in ("out", "in"):
        yield f"driver {way}", _moved(driver[f"{way}_s"], driver[f"{way}_gb_s"]), "", "", "", ""
    hooks = f"{hook['out_s'] + hook['in_s']:.2f} s by hook"
    slower = goals["the driver's checkpoint, in times of the hook"]
    yield "driver out and in", f"{driver['out_s'] + driver['in_s']:.1f} s", hooks, *_against(slower, 12)
    grown = swap["growth_bytes"]
    told = f"host {grown['host'] >> 10} KiB, device {grown['device']}"
    yield f"growth in {_cycles(swap)} cycles", told, "", "", "", ""


def duty(facts: Facts) -> str:
    """`bench duty`."""
    hooks, by_driver = facts["duty"], facts["duty_cuda"]
    goals, together = hooks["goals"], hooks["together"]
    alone = hooks["job-1"]["duty"] + hooks["job-2"]["duty"]
    used = " and ".join(f"{hooks[job]['utilisation']:.3f}" for job in ("job-1", "job-2"))
    rows = [
        ("duty of two jobs", f"{together['duty']:.3f}", f"{alone:.3f} (sum alone)",
         *_against(goals["duty together, of the sum alone"], 0.9)),
        ("time of two jobs", f"{together['wall_s']:.1f} s", f"{hooks['series_s']:.1f} s (in series)",
         *_against(goals["time together, of both in series"], 0.6, at_most=True)),
        ("utilisation (NVML)", f"{together['utilisation']:.3f}", f"{used} alone", "", "", ""),
        ("a switch", f"{hooks['switch_s'] * 1000:.0f} ms", "", "", "", ""),
        ("losses and weights, hooks", _identical(hooks), "", "", "identical", _verdict(hooks["identical"])),
        (f"the same, driver ({facts['measured']['duty_cuda']})", _identical(by_driver), "", "", "identical",
         _verdict(by_driver["identical"])),
    ]  # fmt: skip
    return _measured(facts, "duty", "slicelock bench duty --json") + table(HEAD, rows)


def demo(facts: Facts) -> str:
    """`slicelock demo` on the GPU."""
    told = facts["demo"]
    rows = [
        ("time saved", f"{told['saved']:.0%}"),
        ("duty together", f"{told['shared']['duty']:.2f}"),
        ("duty alone", ", ".join(f"{one['duty']:.2f}" for one in told["solo"])),
        ("kill -9 of the holder to the next turn", f"{told['kill_to_next_turn_s']:.2f} s"),
        ("results bit-identical", "yes" if told["identical"] else "no"),
    ]
    return _measured(facts, "demo", "slicelock demo --json") + table(("what", "figure"), rows)


def driver(facts: Facts) -> str:
    """The tests that measure the driver's checkpoint."""
    told = facts["tests"]
    sizes = sorted({one["gib"] for one in _of(told, "every_size")})
    rows = [(f"{size} GiB", *_rates([one for one in _of(told, "every_size") if one["gib"] == size]))
            for size in sizes]  # fmt: skip
    pieces = _of(told, "number_of_allocations")
    rows += [(f"{one['gib']} GiB in {one['pieces']} allocations", *_rates([one])) for one in pieces]
    pages = {True: "huge pages allowed", False: "without huge pages"}
    rows += [(f"{one['gib']} GiB, {pages[one['huge']]}", *_rates([one])) for one in _of(told, "huge_pages")]
    head = _measured(facts, "tests", *_files("scenarios", "host_memory"))
    large = [one for one in told if "out_gb_s" in one and one["gib"] >= 8]
    return f"{head}{table(('state', 'out', 'in'), rows)}\n\n{_spread(large)}"


def _spread(cycles: Sequence[Facts]) -> str:
    ways = {way: sorted(one[f"{way}_gb_s"] for one in cycles) for way in ("out", "in")}
    spread = (f"{rates[0]:g} to {rates[-1]:g} GB/s {way}" for way, rates in ways.items())
    return f"All {len(cycles)} timed cycles of 8 GiB and more: {', '.join(spread)}."


def hooks_first(facts: Facts) -> str:
    """The tests where hooks move what they can, and the driver the rest."""
    ways = {"bare": "the driver alone", "offload": "`TorchOffload` first", "saver": "`MemorySaver` first"}
    rows: list[Row] = []
    for kind, name in ways.items():
        first, later = (one for one in _of(facts["tests"], "what_hooks_leave") if one["kind"] == kind)
        out, back = (f"{later.get(f'hook_{way}_s', 0) + later[f'{way}_s']:.2f} s" for way in ("out", "in"))
        row = (name, f"{later['rest_mib'] / 1024:.2f} GiB", out, back)
        rows.append((*row, f"{later['whole_s']:.1f} s", f"{first['whole_s']:.1f} s"))
    head = ("20 GiB", "left to the driver", "out", "in", "both", "the first time")
    return _measured(facts, "tests", *_files("costs")) + table(head, rows)


def calls(facts: Facts) -> str:
    """The tests of single calls, and of two at once."""
    [call], [both] = _of(facts["tests"], "what_a_call_costs"), _of(facts["tests"], "one_is_saved_while")
    stays = "/".join(f"{call['stays_ms'][op]:.2f}" for op in ("state", "lock", "unlock"))
    alone, together = both["alone"], both["both"]
    rows = [
        ("asking for the state, lock, unlock, in a helper that stays", f"{stays} ms"),
        ("asking for the state, in a new helper", f"{call['fresh_ms']:.0f} ms"),
        (f"{both['gib']} GiB out while {both['gib']} GiB of another process come in",
         f"{together['whole_s']:.1f} s (alone {alone['out_s']:.1f} s and {alone['in_s']:.1f} s)"),
    ]  # fmt: skip
    return _measured(facts, "tests", *_files("costs")) + table(("what", "time"), rows)


def meanwhile(facts: Facts) -> str:
    """What goes on in a process whose state is saved, and what the driver does not bear."""
    told = facts["tests"]
    [threads], [nccl] = _of(told, "other_threads_go_on"), _of(told, "nccls_monitor")
    beats, codes = threads["beats"], {one["kind"]: one["codes"] for one in _of(told, "goes_on_whatever")}
    assert nccl["lives"]
    rows = [
        (f"beats of a second thread, ten a second, in {threads['parked_s']:.0f} s; the main thread idle, in "
         "a call of PyTorch, in a call that keeps the interpreter's lock",
         f"{beats['idle']}, {beats['touch']}, {beats['freeze']}"),
        (f"a group of one rank (NCCL), saved for {nccl['parked_s']:.0f} s, its monitor's heartbeat "
         f"{nccl['heartbeat_s']} s", "the monitor does not end it; the group goes on"),
        ("PyTorch's profiler is on", f"lock: {codes['profiled']['lock']}; the process goes on"),
        ("4 MiB of managed memory", f"save: {codes['managed']['save']}; unlocked, the process goes on"),
        ("mapped memory with an exported descriptor, which nobody has imported",
         f"saved and restored (codes {_codes(list(codes['exported'].values()))})"),
        *((f"`kill -9` of the {who} at six moments of a switch of 4 GiB each way", _turns(told, victim))
          for victim, who in (("agent", "agent"), ("helper", "helpers that call the driver"))),
    ]  # fmt: skip
    files = _files("meanwhile", "special_memory", "crashes")
    return _measured(facts, "tests", *files) + table(("case", "outcome"), rows)


def _turns(told: Sequence[Facts], victim: str) -> str:
    times = [one["whole_s"] for one in _of(told, "a_kill_at_any_moment") if one["victim"] == victim]
    assert len(times) == 6
    return f"both runs go on bit for bit; the turn is there after {min(times):.1f} to {max(times):.1f} s"


def scenarios(facts: Facts) -> str:
    """What was found out by tests beside."""
    told = facts["tests"]
    [group], [lost] = _of(told, "control_group"), _of(told, "restore_without_room")
    [exchange], room = _of(told, "they_overlap"), group["refused"].split(" leaves ")[1]
    rows = [
        ("a graph, pinned memory, events, cuBLAS, cuDNN, a memory pool; also expandable segments",
         f"all work after {_of(told, 'what_a_process_may_have')[0]['cycles']} cycles of the driver"),
        ("a control group without room", f"refused: the limit leaves {room}"),
        ("the same, forced", "the process is locked; while it is saved, the kernel ends it"),
        ("restore without room; with room again; unlock",
         f"codes {lost['without_room']}, {lost['with_room']}, {lost['unlock']}: the process is lost; killed, "
         f"its memory is free after {lost['freed_after_kill_s']:.1f} s and the next one works"),
        (f"a whole switch of {exchange['gib']} GiB each way that do not both fit, messages included",
         f"{median(exchange['waits_s'][1:]):.2f} s"),
        *(_many(told, way, who) for way, who in (("hook", "hooks"), ("cuda", "the driver"))),
    ]  # fmt: skip
    assert (group["forced_codes"], group["alive"]) == ([0, -1], False)
    files = _files("scenarios", "exchange", "many_switches")
    return _measured(facts, "tests", *files) + table(("case", "outcome"), rows)


def two_gpus(facts: Facts) -> str:
    """The tests that take two GPUs."""
    ways = {one["way"]: one["identical"] for one in _of(facts["two_gpus"], "two_ranks")}
    assert ways == {"hooks": True, "cuda": True}
    rows = [
        ("two runs of two ranks on two GPUs (NCCL), hooks", "bit-identical to alone"),
        ("the same, driver, with the safe settings", "bit-identical to alone"),
    ]
    return _measured(facts, "two_gpus", *_files("two_gpus")) + table(("case", "outcome"), rows)


def _many(told: Sequence[Facts], way: str, who: str) -> Row:
    [one] = (one for one in _of(told, "no_growth") if one["way"] == way)
    wait = median(one["waits_s"][1:])
    return (
        f"{one['switches']} switches between two jobs of {one['gib']} GiB each, {who}",
        f"bit-identical to alone; jobs and GPU grow by {max(one['grown_mib'])} MiB at the most; "
        f"the turn is there after {wait:.2f} s",
    )


PARTS = {
    "machine": machine,
    "swap": swap,
    "duty": duty,
    "demo": demo,
    "driver": driver,
    "scenarios": scenarios,
    "two_gpus": two_gpus,
    "hooks_first": hooks_first,
    "calls": calls,
    "meanwhile": meanwhile,
}


def _files(*names: str) -> list[str]:
    return [f"tests/gpu/test_{name}.py" for name in names]


def _of(told: Sequence[Facts], name: str) -> list[Facts]:
    return [one for one in told if name in one["test"]]


def _rates(cycles: Sequence[Facts]) -> tuple[str, str]:
    out, back = ([_moved(one[f"{way}_s"], one[f"{way}_gb_s"]) for one in cycles] for way in ("out", "in"))
    return out[-1], back[-1]


def _moved(seconds: float, rate: float) -> str:
    return f"{seconds:.3f} s, {rate:g} GB/s"


def _against(ratio: float, limit: float, *, at_most: bool = False) -> tuple[str, str, str]:
    reached = ratio <= limit if at_most else ratio >= limit
    return f"{ratio:.3g}", f"{'≤' if at_most else '≥'} {limit:g}", _verdict(reached)


def _verdict(reached: bool) -> str:
    return "reached" if reached else "missed"


def _identical(duty: Facts) -> str:
    return "identical" if duty["identical"] else f"differ from step {duty['differing_steps']}"


def _codes(codes: Sequence[int]) -> str:
    return ", ".join(map(str, codes))
