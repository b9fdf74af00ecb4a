"""The hook for jobs whose memory must keep its addresses, as CUDA graphs need: through torch_memory_saver.

That library ends the process when something is paused twice, resumed twice, or resumed into too little
memory. So every pause and resume of this process goes through one book, also those that a framework calls
itself, and nothing is resumed before there is room for it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Set
from importlib import import_module
from typing import Any, cast

from slicelock.errors import ConfigurationError, RestoreFailed, SlicelockError, SnapshotFailed
from slicelock.hooks.moved import Moved
from slicelock.hooks.paused_memory import PausedMemory, Pool
from slicelock.hooks.torch_offload.torch_module import load_torch
from slicelock.host_memory import readable

log = logging.getLogger("slicelock")

BOOK = "_slicelock_book"


class MemorySaver:
    """Pauses the regions of `torch_memory_saver`: those of one tag, or of all tags.

    What the framework had paused itself stays paused on reload, also what it paused before this hook was
    made. The library's host backup is kept between switches, so that it is pinned once. Regions without
    `enable_cpu_backup` lose their contents, as ever.

    Before a resume there must be room for what this process's pause took, by torch's sizes of it and the
    driver's word; what a library other than torch allocates in a region is not in that. Without NVIDIA's
    driver there must be room for all that torch has reserved, and the hook must be made before the first
    pause.

    ConfigurationError when the library is not installed, or has paused memory of unknown tags already.
    """

    def __init__(self, tag: str | None = None) -> None:
        self._tag = tag
        self._torch = load_torch()
        self._saver = _library()
        self._memory = PausedMemory(self._torch)
        self._book = Book.of(self._saver, self._memory)
        self._paused: tuple[str | None, ...] = ()
        self._taken: Set[int] | None = None  # the addresses; None: unknown
        self.last = Moved(0)

    def offload(self) -> Moved:
        """Pause what is not paused. SnapshotFailed when the library was never used in this process."""
        self._refuse_unused()
        begun = time.monotonic()
        tags = self._book.awake(self._tag)
        if not tags:
            return Moved(0)
        self._settle()
        ours = self._taken or frozenset()  # of a pause or a resume that failed half-way
        before = {one: pool for one, pool in self._memory.addresses().items() if one not in ours}
        self._taken, free = None, self._free()
        try:
            for tag in tags:
                self._book.pause(tag, ours=True)
                self._paused += (tag,)
            self._taken = self._memory.since(before)
        except Exception as failure:
            raise SnapshotFailed(f"Pausing failed: {failure} {self._undo(before)}") from failure
        seconds = time.monotonic() - begun
        if self._taken is not None:
            moved = sum(self._memory.sizes(self._taken).values())
        else:  # by what is free now, for what that is worth
            moved = sum(max(0, now - free.get(index, now)) for index, now in self._free().items())
        self.last = Moved(moved, seconds=seconds)
        return self.last

    def reload(self) -> Moved:
        """Resume what `offload` paused. RestoreFailed, with the numbers, when there is no room for it: the
        library would end the process.
        """
        if not self._paused:
            return Moved(0)
        begun = time.monotonic()
        self._refuse_full()
        self._resume()
        self._settle()
        self.last = Moved(int(self.last), seconds=time.monotonic() - begun)
        return self.last

    def _undo(self, before: Mapping[int, Pool]) -> str:
        """Resume what had been paused when it failed, if there is room for it still; what became of it."""
        try:
            self._taken = self._memory.since(before)
            self._refuse_full()
        except SlicelockError as why:
            return f"What had been paused stays so until a reload: {why}"
        self._resume()
        return "What had been paused is resumed."

    def _resume(self) -> None:
        try:
            while self._paused:
                self._book.resume(self._paused[-1], ours=True)
                self._paused = self._paused[:-1]
        finally:
            if self._taken is not None:
                self._taken &= self._memory.addresses().keys() if self._paused else frozenset()

    def _refuse_unused(self) -> None:
        if getattr(self._saver, "_impl", None) is None:
            raise SnapshotFailed(
                "torch_memory_saver has not been used in this process, so it has nothing to pause.",
                advice="Allocate inside its `region(enable_cpu_backup=True)`, or use TorchOffload.",
            )
        if not self._saver.retain_cpu_backup:
            self._saver.retain_cpu_backup = True

    def _refuse_full(self) -> None:
        sizes = None if self._taken is None else self._memory.sizes(self._taken)
        for index, free in self._free().items():
            needed = self._torch.cuda.memory_reserved(index) if sizes is None else sizes[index]
            if free < needed:
                raise RestoreFailed(
                    f"cuda:{index} has {readable(free)} free, and {readable(needed)} are to come back; "
                    "nothing was resumed."
                )

    def _settle(self) -> None:
        for index in self._indices():
            self._torch.cuda.synchronize(index)
        self._torch.cuda.empty_cache()

    def _free(self) -> dict[int, int]:
        return {index: int(self._torch.cuda.mem_get_info(index)[0]) for index in self._indices()}

    def _indices(self) -> list[int]:
        """The devices that this process has memory on; asking about others would cost it a context there."""
        cuda = self._torch.cuda
        used = [index for index in range(cuda.device_count()) if cuda.memory_reserved(index)]
        return used or [int(cuda.current_device())]


class Book:
    """What of one saver is paused, and by whom. It stands in for the saver's `pause`, `resume`, `region` and
    `cuda_graph`, so that a framework's own calls are in it too.
    """

    def __init__(self, saver: Any, paused: Set[str] = frozenset()) -> None:
        self._saver = saver
        self._pause, self._resume = saver.pause, saver.resume
        self._lock = threading.RLock()
        self._tags = set(_tags_of(saver).values())
        self._all: bool | None = (
            None  # of tags that have no word of their own: None is awake, else whether by us
        )
        self._each: dict[str, bool | None] = dict.fromkeys(paused, False)

    @classmethod
    def of(cls, saver: Any, memory: PausedMemory) -> Book:
        """The saver's book; there is one for each saver. It begins with what is paused already:
        ConfigurationError where the tag of that cannot be told.
        """
        attributes = cast(dict[str, Any], vars(saver))
        if BOOK not in attributes:
            book = cls(saver, _paused_tags(saver, memory))
            stand_ins = {"pause": book.pause, "resume": book.resume}
            stand_ins |= {name: book.noting(getattr(saver, name)) for name in ("region", "cuda_graph")}
            attributes.update(stand_ins, **{BOOK: book})
        return attributes[BOOK]

    def awake(self, tag: str | None) -> list[str | None]:
        """What is to be paused so that `tag` (None: everything) is, and nothing is paused twice."""
        with self._lock:
            if tag is not None:
                return [tag] if self._held(tag) is None else []
            awake = [one for one in sorted(self._known()) if self._held(one) is None]
            nothing_paused = self._all is None and len(awake) == len(self._known())
            return [None] if nothing_paused else [*awake]

    def pause(self, tag: str | None = None, *, ours: bool = False) -> None:
        """As the saver's own. SlicelockError, not the process's end, when something of it is paused."""
        with self._lock:
            owners = self._owners(tag)
            if held := [owner for owner in owners if owner is not None]:
                raise _refused("pause", tag, "something is paused already", any(held))
            self._pause(tag)
            self._note(tag, ours)

    def resume(self, tag: str | None = None, *, ours: bool = False) -> None:
        """As the saver's own. SlicelockError, instead of the process's end, when something of it is not
        paused; also when it is slicelock that has paused it, since the run then has no turn.
        """
        with self._lock:
            owners = self._owners(tag)
            if None in owners:
                raise _refused("resume", tag, "something is not paused", False)
            if any(owners) and not ours:
                raise _refused("resume", tag, "it must stay paused", True)
            self._resume(tag)
            self._note(tag, None)

    def noting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, with the tags noted that it is called with."""

        def noted(*args: Any, **kwargs: Any) -> Any:
            first = args[0] if args and isinstance(args[0], str) else "default"
            self._tags.add(str(kwargs.get("tag", first)))
            return original(*args, **kwargs)

        return noted

    def _known(self) -> set[str]:
        return self._tags | self._each.keys()

    def _held(self, tag: str) -> bool | None:
        """None while the tag is awake, else whether it was paused by us."""
        return self._each.get(tag, self._all)

    def _owners(self, tag: str | None) -> list[bool | None]:
        """By whom the parts of `tag` are paused."""
        if tag is not None:
            return [self._held(tag)]
        return [self._held(one) for one in self._known()] or [self._all]

    def _note(self, tag: str | None, owner: bool | None) -> None:
        if tag is None:
            self._all, self._each = owner, {}
        else:
            self._each[tag] = owner


def _refused(verb: str, tag: str | None, why: str, ours: bool) -> SlicelockError:
    by = ", because the run has no turn" if ours else ""
    return SlicelockError(
        f"torch_memory_saver.{verb}({tag!r}) was not carried out: {why}{by}. The library would have ended "
        "the process.",
        advice="Call it inside a turn." if ours else "Pause what is awake, resume what is paused.",
    )


def _tags_of(saver: Any) -> dict[Pool, str]:
    """The tags of regions that were there before the book, by the pool of torch's allocator."""
    pools: Mapping[Any, Any] = getattr(getattr(saver, "_impl", None), "_mem_pools", {})
    return {tuple(pool.id): str(key[0]) for key, pool in pools.items()}


def _paused_tags(saver: Any, memory: PausedMemory) -> Set[str]:
    """The tags that were paused before the book."""
    if getattr(saver, "_impl", None) is None:
        return frozenset()
    tags, paused = _tags_of(saver), memory.addresses()
    if unknown := {address for address, pool in paused.items() if pool not in tags}:
        nbytes = sum(memory.sizes(unknown).values())
        raise ConfigurationError(
            f"torch_memory_saver has paused {readable(nbytes)} outside its regions, as of CUDA graphs, "
            "before the hook was made; by which tag cannot be told.",
            advice="Make MemorySaver before the first pause, or when everything is resumed.",
        )
    return {tags[pool] for pool in paused.values()}


def _library() -> Any:
    try:
        return import_module("torch_memory_saver").torch_memory_saver
    except ImportError as missing:
        raise ConfigurationError(
            f"torch_memory_saver cannot be imported ({missing}).",
            advice="pip install 'slicelock[memory-saver]' in the job's environment.",
        ) from None
