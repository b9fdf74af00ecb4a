"""The hook for PyTorch jobs."""

from __future__ import annotations

import gc
import logging
import os
import threading
import time
from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from slicelock.errors import ConfigurationError, RestoreFailed, SlicelockError, SnapshotFailed
from slicelock.exchange import ComingSide, Exchange, LeavingSide
from slicelock.hooks.moved import Moved
from slicelock.hooks.torch_offload.device import CudaMachine, Machine
from slicelock.hooks.torch_offload.fleet import Fleet
from slicelock.hooks.torch_offload.guard import ClosedModules
from slicelock.hooks.torch_offload.inventory import ByDevice, Found, Inventory, Load
from slicelock.hooks.torch_offload.layout import DROPPED, Place, room_needed
from slicelock.hooks.torch_offload.pool import SETTING
from slicelock.hooks.torch_offload.refusals import refuse_at_a_glance
from slicelock.hooks.torch_offload.saving import HostCopies, refuse_gathering
from slicelock.hooks.torch_offload.torch_module import load_torch
from slicelock.hooks.torch_offload.transfer import Mover, moved_bytes
from slicelock.host_memory import readable

log = logging.getLogger("slicelock")


class TorchOffload:
    """Moves the given things off their devices and back, in place: every tensor, view, parameter, gradient
    and optimizer stays the object that it was.

    `things`: modules, optimizers (their state is found when it appears), tensors, nested containers of
    these, and callables that return them, asked at each offload.

    `discard`: pairs of a thing and a callable. The thing is not copied but dropped, and on reload the
    callable is called with it to fill it again, for example a frozen reference model and a function that
    loads it.

    `graphs_elsewhere`: says that no captured CUDA graph of this process uses these things.

    The host memory is pinned in the background as soon as there are tensors to size it by, bounded by
    SLICELOCK_HOST_POOL; `prepare()` waits for it. What does not fit stays on the device for the next way to
    move it, and is warned about. ConfigurationError for things that it cannot handle.
    """

    overlaps = True
    """`offload` and `reload` take an `exchange` page."""

    def __init__(
        self,
        *things: Any,
        discard: Iterable[tuple[Any, Load]] = (),
        graphs_elsewhere: bool = False,
        machine: Machine | None = None,
    ) -> None:
        self._torch = load_torch()
        machine = machine or CudaMachine(self._torch)
        self._inventory = Inventory(self._torch, machine, things, discard)
        self._fleet = Fleet(machine)
        self._graphs_elsewhere = graphs_elsewhere
        self._places: ByDevice = {}  # what is away, or on its way
        self._closed = ClosedModules()
        self._lock, self._process = threading.RLock(), os.getpid()
        self._expecting: dict[int, Any] = {}  # the handles of optimizers whose next step is waited for
        self.last = Moved(0)
        self._foresee_after_step(self._foresee())

    # ------------------------------------------------------------ the hook

    def offload(self, *, exchange: Path | str | None = None) -> Moved:
        """Copy everything to host memory and free the device. Again, or with nothing there, it does
        nothing.

        With an `exchange` page each block is handed over as soon as it is free. SnapshotFailed, with the
        reason and the way out, when it cannot be; then everything is on the device as before, or the
        message says what is not.
        """
        self._refuse_child()
        with self._lock, _without_collections(), _opened(exchange) as page:
            if self._places and all(place.away for place in self._all_places()):
                return Moved(0)
            self._bring_back()
            self.last = self._offload(page)
            return self.last

    def reload(self, *, exchange: Path | str | None = None) -> Moved:
        """Bring back what `offload` moved, into the same storages. Nothing to bring back: it does nothing.

        RestoreFailed, with the numbers, when there is no room or loading again what was discarded fails; then
        nothing is on the device and everything is whole in host memory, so that it can be tried again.
        """
        self._refuse_child()
        with self._lock, _without_collections(), _opened(exchange) as page:
            if not self._away():
                return Moved(0)
            self.last = self._reload(page)
            return self.last

    # ------------------------------------------------------------ more for users

    @property
    def pool_bytes(self) -> int:
        """Host memory that is pinned now, in bytes."""
        return self._fleet.pool_bytes

    def prepare(self, timeout: float | None = None) -> bool:
        """Pin host memory for what is on the devices now and wait for it, at most `timeout` seconds;
        whether that came to its end. The first offload does this by itself; this is for whoever wants to
        know when.
        """
        self._refuse_child()
        with self._lock:
            self._foresee()
        return self._fleet.settle(timeout)

    def state_dict(self, thing: Any = None) -> Any:
        """The state dict of one of the things (by default the only module), all tensors copied to host
        memory.

        While offloaded it reads the host copy, so that saving needs no turn. Tensors that are on the device,
        also those that had no room in the host pool and stayed, are copied from there: that uses the device,
        whoever has it. A DTensor's copy is its local shard; what is neither tensor, dict, list nor tuple is
        passed on as it is. ConfigurationError when it is not clear which thing is meant, for FSDP1, which
        would gather on the device, for a ShardedTensor, for sparse and quantized tensors, and in a forked
        child.
        """
        self._refuse_child()
        with self._lock:
            meant = self._which(thing)
            if isinstance(meant, self._torch.nn.Module):
                refuse_gathering(meant)
            return HostCopies(self._torch, self._host_place).of(meant.state_dict())

    def close(self) -> None:
        """Give the pinned memory back. What is offloaded is reloaded first.

        What cannot be unpinned is raised when all the rest is, and may be tried again. A forked child has
        nothing to give back.
        """
        if self._in_child:
            return
        with self._lock:
            self._bring_back()
            while self._expecting:  # a step would have it pinned again
                self._expecting.popitem()[1].remove()
            self._fleet.close()

    # ------------------------------------------------------------ offload

    def _offload(self, page: Exchange | None) -> Moved:
        begun = time.monotonic()
        found = self._inventory.look(call=True)
        if not found.all():
            return Moved(0)
        refuse_at_a_glance(found.all())
        self._places, left = self._fleet.assign(found.kept, found.dropped)
        if not self._places:
            raise SnapshotFailed(
                f"No host memory can be pinned: {self._fleet.reasons or 'no reason given'}.",
                advice=f"Raise {SETTING} or the machine's limit.",
            )
        sides: dict[int, LeavingSide] = {}
        self._closed.choose(self._inventory.with_any(found.modules, self._storages()))
        try:
            self._closed.close()
            for index, lanes, key in self._lanes(page):
                with suppress(ConfigurationError):  # another process of the run has the lane
                    sides[index] = lanes.leaving(key)
            self._fleet.on_all(
                self._places, lambda index, mover, places: self._leave(mover, places, sides.get(index))
            )
        except BaseException as failure:
            self._closed.choose(())
            self._undo(failure, list(sides.values()))
            raise
        self._foresee_after_step(found)
        moved = Moved(moved_bytes(self._all_places()), seconds=time.monotonic() - begun, left=left)
        self._fleet.look_for_others(list(self._places), left)
        return moved

    def _leave(self, mover: Mover, places: list[Place], side: LeavingSide | None) -> None:
        mover.device.settle()
        mover.leave(places, lambda: mover.device.check(places, self._graphs_elsewhere), side)
        if side:
            side.done()

    def _undo(self, failure: BaseException, sides: list[LeavingSide]) -> None:
        """Bring back what had been offloaded when it failed, if nobody else has taken its room by then."""
        begun = self._away()
        why = ""
        # What has not left has no copy either: nothing from here on may touch it.
        self._places = {index: [one for one in places if one.away] for index, places in self._places.items()}
        try:
            answers = [side.take_back() for side in sides]  # every comer must be asked
            if all(answers):
                self._bring_back()
        except Exception as second:
            log.exception("what was offloaded cannot be brought back now")
            why = f" ({second})"
        if kept := sum(place.nbytes for place in self._all_places() if place.away):
            raise SnapshotFailed(
                f"The offload failed half-way: {failure} {readable(kept)} could not be brought back{why}; "
                "they are whole in host memory until a reload."
            ) from failure
        if begun:
            raise SnapshotFailed(
                f"The offload failed half-way: {failure} What had been offloaded is back on the device."
            ) from failure

    # ------------------------------------------------------------ reload

    def _reload(self, page: Exchange | None) -> Moved:
        begun = time.monotonic()
        sides: dict[int, ComingSide] = {}
        try:
            for index, lanes, key in self._lanes(page):
                sides[index] = lanes.coming(key, self._fleet.mover(index).device.free_bytes)
            self._fleet.on_all(
                self._places, lambda index, mover, places: self._come(mover, places, sides.get(index))
            )
            self._closed.open()
            self._load_discarded()
        except BaseException:
            self._fleet.withdraw(self._places)
            self._closed.close()
            for side in sides.values():
                side.gave_back()
            raise
        for side in sides.values():
            side.done()
        moved = Moved(moved_bytes(self._all_places()), seconds=time.monotonic() - begun)
        self._places = {}
        self._closed.choose(())  # nothing is kept alive by it
        return moved

    def _come(self, mover: Mover, places: list[Place], side: ComingSide | None) -> None:
        away = [place for place in places if place.away]
        if side is None and (needed := room_needed(away)) > (free := mover.device.free_bytes()):
            raise RestoreFailed(
                f"{mover.device.name} has {readable(free)} free, and {readable(needed)} are to come back; "
                "nothing was restored."
            )
        mover.come(away, side)

    def _load_discarded(self) -> None:
        for thing, load in self._inventory.discard:
            try:
                load(thing)
            except Exception as failure:
                raise RestoreFailed(
                    f"Loading {type(thing).__name__} again, which was discarded, failed: "
                    f"{type(failure).__name__}: {failure}. Nothing is on the device; a reload tries again."
                ) from failure

    def _bring_back(self) -> None:
        """After an offload that failed half-way, or before closing."""
        if self._away():
            self._reload(None)
        self._places = {}

    # ------------------------------------------------------------ what both use

    @property
    def _in_child(self) -> bool:
        """Whether this is a forked child, in which another thread's locks stay closed."""
        return os.getpid() != self._process

    def _refuse_child(self) -> None:
        """A forked child has no host copies: to read there would end it (SIGSEGV)."""
        if self._in_child:
            raise ConfigurationError(
                "This process was forked from the one whose tensors these are, and has no copy of them.",
                advice="Call state_dict() in the parent, and give the child what it returns.",
            )

    def _all_places(self) -> list[Place]:
        return [place for places in self._places.values() for place in places]

    def _storages(self) -> set[int]:
        return {place.storage._cdata for place in self._all_places()}

    def _away(self) -> bool:
        return any(place.away for place in self._all_places())

    def _lanes(self, page: Exchange | None) -> list[tuple[int, Exchange, str]]:
        """The devices of ours that are exchanged, each with the page and its key there."""
        keys = [(index, self._fleet.mover(index).device.key) for index in self._places]
        return [(index, page, key) for index, key in keys if page and page.has(key)]

    def _which(self, thing: Any) -> Any:
        modules = self._inventory.modules()
        if thing is None and len(modules) != 1:
            raise ConfigurationError(
                f"There are {len(modules)} modules among the things, so it is not clear which one is meant.",
                advice="Name it: state_dict(model).",
            )
        return modules[0] if thing is None else thing

    def _host_place(self, storage: Any) -> tuple[Place, int] | None:
        for index, places in self._places.items():
            for place in places:
                if place.storage._cdata == storage._cdata and place.away:
                    if place.offset == DROPPED:
                        raise ConfigurationError(
                            f"{place.name} was discarded, so there is no copy of it to save."
                        )
                    return place, self._fleet.mover(index).pool.address + place.offset
        return None

    # ------------------------------------------------------------ pinning ahead of time

    def _foresee(self) -> Found:
        """Have the pools grow for what is there now. Callables are not called for it."""
        found = self._inventory.look(call=False)
        self._fleet.foresee(found.kept)
        return found

    def _foresee_after_step(self, found: Found) -> None:
        """Look again after the next step of each optimizer, since its state and the gradients appear then."""
        for optimizer in found.optimizers:
            known = id(optimizer) in self._expecting
            if not known and hasattr(optimizer, "register_step_post_hook"):
                self._expect_step(optimizer)

    def _expect_step(self, optimizer: Any) -> None:
        def after(*_: object) -> None:
            if self._in_child:
                return
            with self._lock, suppress(SlicelockError):  # the step has no part in it; the offload will tell
                if handle := self._expecting.pop(id(optimizer), None):
                    handle.remove()
                    self._foresee()

        self._expecting[id(optimizer)] = optimizer.register_step_post_hook(after)


_withheld: list[bool] = []  # not empty while collections are switched off here


@contextmanager
def _without_collections() -> Generator[None]:
    """Thousands of tensors are tens of thousands of small objects for a moment: Python would look through all
    of the job's in vain, for longer than the copies take.
    """
    collects = gc.isenabled()
    if collects:
        _withheld.append(True)
        gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
            _withheld.clear()


def _collect_in_child() -> None:
    """A child that is forked meanwhile has no thread that would switch them on again."""
    if _withheld:
        _withheld.clear()
        gc.enable()


os.register_at_fork(after_in_child=_collect_in_child)


def _opened(path: Path | str | None) -> AbstractContextManager[Exchange | None]:
    return nullcontext() if path is None else Exchange(Path(path))
