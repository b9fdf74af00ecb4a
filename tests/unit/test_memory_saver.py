"""MemorySaver against a stand-in that ends the process as the library does, which a test can see."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import pytest

from slicelock.errors import ConfigurationError, RestoreFailed, SlicelockError, SnapshotFailed
from slicelock.hooks import MemorySaver, memory_saver, paused_memory
from tests.support.saver_library import Device, Library

GIB = 1 << 30


@pytest.fixture
def device() -> Device:
    return Device(16 * GIB)


@pytest.fixture
def saver(device: Device, monkeypatch: pytest.MonkeyPatch) -> Library:
    """The library, with weights and a cache already there."""
    library = Library(device)
    module = ModuleType("torch_memory_saver")
    module.torch_memory_saver = library  # type: ignore[attr-defined]
    monkeypatch.setitem(__import__("sys").modules, "torch_memory_saver", module)
    monkeypatch.setattr(memory_saver, "load_torch", lambda: SimpleNamespace(cuda=device))
    monkeypatch.setattr(paused_memory, "Driver", lambda: library)
    library.allocate("weights", 4 * GIB)
    library.allocate("cache", 2 * GIB)
    return library


def test_everything_is_paused_and_resumed_at_once(saver: Library, device: Device) -> None:
    hook = MemorySaver()
    assert hook.offload() == 6 * GIB
    assert device.free == 16 * GIB
    assert hook.offload() == 0
    assert hook.reload() == 6 * GIB
    assert hook.reload() == 0
    assert saver.calls == [("pause", None), ("resume", None)]
    assert saver.retain_cpu_backup


def test_one_tag_only(saver: Library) -> None:
    hook = MemorySaver("cache")
    assert hook.offload() == 2 * GIB
    assert saver.paused == {"cache"}
    hook.reload()
    assert saver.paused == set()


def test_what_the_framework_paused_stays_paused(saver: Library) -> None:
    hook = MemorySaver()
    saver.pause("cache")
    assert hook.offload() == 4 * GIB
    assert saver.paused == {"weights", "cache"}
    hook.reload()
    assert saver.paused == {"cache"}
    saver.resume("cache")
    assert saver.paused == set()


def test_a_framework_that_paused_everything_is_left_alone(saver: Library) -> None:
    hook = MemorySaver()
    saver.pause()
    assert (hook.offload(), hook.reload()) == (0, 0)
    saver.resume()
    assert saver.paused == set()


def test_everything_paused_may_be_resumed_tag_by_tag(saver: Library) -> None:
    hook = MemorySaver()
    saver.pause()
    saver.resume("weights")
    assert hook.offload() == 4 * GIB
    hook.reload()
    saver.resume("cache")
    saver.pause("weights")
    saver.pause("cache")
    saver.resume()
    assert saver.paused == set()


def test_two_hooks_share_one_book(saver: Library) -> None:
    weights, everything = MemorySaver("weights"), MemorySaver()
    assert weights.offload() == 4 * GIB
    assert everything.offload() == 2 * GIB
    everything.reload()
    weights.reload()
    assert saver.paused == set()


@pytest.mark.parametrize("tag", [None, "weights"])
def test_a_framework_cannot_resume_without_a_turn(saver: Library, tag: str | None) -> None:
    hook = MemorySaver()
    hook.offload()
    with pytest.raises(SlicelockError, match=r"it must stay paused, because the run has no turn"):
        saver.resume(tag)
    hook.reload()
    assert saver.paused == set()


@pytest.mark.parametrize("ours", [True, False])
def test_a_second_pause_is_an_error_instead_of_the_end(saver: Library, ours: bool) -> None:
    hook = MemorySaver()
    hook.offload() if ours else saver.pause("weights")
    for tag in (None, "weights"):
        with pytest.raises(SlicelockError, match="something is paused already"):
            saver.pause(tag)


def test_a_second_resume_is_an_error_instead_of_the_end(saver: Library) -> None:
    MemorySaver()
    for tag in (None, "weights"):
        with pytest.raises(SlicelockError, match="something is not paused"):
            saver.resume(tag)


def test_tags_that_appear_later_are_known(saver: Library) -> None:
    hook = MemorySaver()
    saver.pause("cache")
    saver.allocate("later", GIB)
    with saver.cuda_graph(object(), tag="graph"):
        saver.take("graph", GIB, (7, 0))
    assert hook.offload() == 6 * GIB
    assert saver.paused == {"weights", "cache", "later", "graph"}
    hook.reload()
    assert saver.paused == {"cache"}


def test_nothing_is_resumed_without_room(saver: Library, device: Device) -> None:
    hook = MemorySaver()
    hook.offload()
    device.free = 5 * GIB
    with pytest.raises(
        RestoreFailed, match=r"cuda:0 has 5.00 GiB free, and 6.00 GiB are to come back; nothing was"
    ):
        hook.reload()
    device.free = 6 * GIB
    assert hook.reload() == 6 * GIB


@pytest.mark.parametrize("others", [-5 * GIB, 5 * GIB])
def test_the_room_needed_is_the_same_whatever_others_do_meanwhile(
    saver: Library, device: Device, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    hook = MemorySaver()
    original = hook._book._pause

    def pause(tag: str | None) -> None:
        original(tag)
        device.free += others

    monkeypatch.setattr(hook._book, "_pause", pause)
    assert hook.offload() == 6 * GIB
    device.free = 6 * GIB - 1
    with pytest.raises(RestoreFailed, match=r"6\.00 GiB are to come back; nothing was resumed"):
        hook.reload()
    device.free = 6 * GIB
    assert hook.reload() == 6 * GIB


def test_only_what_was_paused_needs_room(saver: Library, device: Device) -> None:
    hook = MemorySaver("cache")
    with saver.cuda_graph(object(), tag="cache"):
        saver.take("cache", GIB, (7, 0))
    hook.offload()
    device.free = 2 * GIB
    with pytest.raises(RestoreFailed, match=r"3\.00 GiB are to come back"):
        hook.reload()
    device.free = 3 * GIB
    assert hook.reload() == 3 * GIB


def test_without_a_driver_to_be_asked_there_must_be_room_for_all_that_torch_has(
    saver: Library, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise ConfigurationError("no libcuda")

    monkeypatch.setattr(paused_memory, "Driver", missing)
    hook = MemorySaver("cache")
    assert hook.offload() == 2 * GIB
    device.free = 5 * GIB
    with pytest.raises(RestoreFailed, match=r"6\.00 GiB are to come back"):
        hook.reload()
    device.free = 6 * GIB
    assert hook.reload() == 2 * GIB


# ------------------------------------------------------------ paused before the hook was made


@pytest.mark.parametrize("tag", [None, "cache"])
def test_what_was_paused_before_the_hook_is_known(saver: Library, tag: str | None) -> None:
    saver.pause("cache")
    hook = MemorySaver(tag)
    assert hook.offload() == (0 if tag else 4 * GIB)
    hook.reload()
    assert saver.paused == {"cache"}
    saver.resume("cache")
    assert hook.offload() == (2 if tag else 6) * GIB


def test_everything_was_paused_before_the_hook(saver: Library) -> None:
    saver.pause()
    hook = MemorySaver()
    assert (hook.offload(), hook.reload()) == (0, 0)
    saver.resume()
    assert hook.offload() == 6 * GIB


def test_graphs_paused_before_the_hook_are_refused_with_the_way_out(saver: Library) -> None:
    with saver.cuda_graph(object(), tag="graph"):
        saver.take("graph", GIB, (7, 0))
    saver.pause("graph")
    with pytest.raises(ConfigurationError, match=r"has paused 1\.00 GiB outside.*before the first pause"):
        MemorySaver()
    saver.resume("graph")
    assert MemorySaver().offload() == 7 * GIB


def failing_at(
    tag: str, original: Callable[[str | None], None], at_once: Callable[[], None] = lambda: None
) -> Callable[[str | None], None]:
    """A pause or resume that fails for this tag, after something else has happened."""

    def fail(one: str | None) -> None:
        if one == tag:
            at_once()
            raise RuntimeError("CUDA error")
        original(one)

    return fail


def test_a_pause_that_fails_half_way_is_undone(saver: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    hook = MemorySaver()
    saver.pause("cache")
    saver.allocate("more", GIB)
    book = saver.__dict__[memory_saver.BOOK]
    monkeypatch.setattr(book, "_pause", failing_at("weights", book._pause))
    with pytest.raises(SnapshotFailed, match=r"CUDA error What had been paused is resumed"):
        hook.offload()
    assert saver.paused == {"cache"}
    monkeypatch.undo()


def test_a_pause_that_fails_half_way_is_undone_only_where_there_is_room(
    saver: Library, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = MemorySaver()
    saver.pause("cache")
    saver.allocate("more", GIB)
    fail = failing_at("weights", hook._book._pause, lambda: setattr(device, "free", GIB - 1))
    monkeypatch.setattr(hook._book, "_pause", fail)
    with pytest.raises(
        SnapshotFailed, match=r"CUDA error What had been paused stays so until a reload: cuda:0"
    ):
        hook.offload()
    assert saver.paused == {"more", "cache"}
    device.free = GIB
    hook.reload()
    assert saver.paused == {"cache"}


def test_a_pause_that_failed_half_way_goes_on_where_it_has_ended(
    saver: Library, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = MemorySaver()
    saver.pause("cache")
    saver.allocate("more", GIB)
    fail = failing_at("weights", hook._book._pause, lambda: setattr(device, "free", 0))
    with monkeypatch.context() as patched:
        patched.setattr(hook._book, "_pause", fail)
        with pytest.raises(SnapshotFailed):
            hook.offload()
    assert saver.paused == {"more", "cache"}
    assert hook.offload() == 5 * GIB
    assert saver.paused == {"more", "cache", "weights"}
    device.free = 5 * GIB - 1
    with pytest.raises(RestoreFailed, match=r"5\.00 GiB are to come back"):
        hook.reload()
    device.free = 5 * GIB
    hook.reload()
    assert saver.paused == {"cache"}


def test_a_resume_that_failed_half_way_needs_room_for_the_rest_alone(
    saver: Library, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = MemorySaver()
    saver.pause("cache")
    saver.allocate("more", GIB)
    hook.offload()
    with monkeypatch.context() as patched:
        patched.setattr(hook._book, "_resume", failing_at("more", hook._book._resume))
        with pytest.raises(RuntimeError):
            hook.reload()
    assert saver.paused == {"more", "cache"}
    device.free = GIB
    hook.reload()
    assert saver.paused == {"cache"}


def test_a_library_that_was_never_used_has_nothing_to_pause(saver: Library) -> None:
    saver._impl = None
    with pytest.raises(SnapshotFailed, match=r"has not been used in this process.*enable_cpu_backup=True"):
        MemorySaver().offload()


def test_without_the_library_there_is_one_clear_line(saver: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch_memory_saver", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'slicelock\[memory-saver\]'"):
        MemorySaver()
