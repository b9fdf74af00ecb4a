"""`Slice` and `AsyncSlice`: what a program asks for turns on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from slicelock.client.block import AsyncTurnBlock, TurnBlock
from slicelock.client.ground import Ground, ground_of
from slicelock.client.turn import AsyncTurn, Turn, check_timeout
from slicelock.companion import serving
from slicelock.errors import ConfigurationError, NotGranted
from slicelock.keys import check_name
from slicelock.protocol import Wish
from slicelock.settings import Settings


class _Slices:
    """One or more slices, taken all or none.

    `lane`: the strand of the run whose turns these are. `priority`: a head start in the queue, −10 to 10.
    `settings` replaces what the environment says. Nothing is read or reached before the first turn.

    Raises ConfigurationError for a name that is not allowed.
    """

    def __init__(
        self,
        *names: str,
        lane: str | None = None,
        priority: int | None = None,
        settings: Settings | None = None,
    ) -> None:
        if not names:
            raise ConfigurationError(
                f"{type(self).__name__} needs the name of a slice.",
                advice='For example Slice("trainers"); `slicelock slice list` shows what there is.',
            )
        self.names = tuple(sorted({check_name("slice", name) for name in names}))
        self._lane = None if lane is None else check_name("lane", lane)
        self._priority = None if priority is None else _checked_priority(priority)
        self._given, self._loaded = settings, settings
        self._ground: Ground | None = None
        self._wishes: dict[tuple[object, ...], Wish] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.names))})"

    def __getstate__(self) -> dict[str, Any]:
        """What a copy takes along, to another process too: what was given here, nothing that was found."""
        return {**self.__dict__, "_loaded": self._given, "_ground": None, "_wishes": {}}

    @property
    def _settings(self) -> Settings:
        if self._loaded is None:
            self._loaded = Settings.load()
        return self._loaded

    def _stand(self) -> Ground:
        """The ground of the next turn: found once, and again after a fork or once the party was closed."""
        if (name := serving.get()) in self.names:
            raise NotGranted(
                f"A hook asked for a turn on {name}, which does not begin before the hook has ended.",
                advice="Have offload() and reload() move state, and nothing else.",
                slice=name,
            )
        ground = self._ground
        if ground and not (ground.party and (ground.party.foreign or ground.party.closed)):
            return ground
        self._loaded = self._given
        self._wishes.clear()
        self._ground = ground = ground_of(self._settings)
        return ground

    def _wish(self, *asked: *tuple[str, float | None, bool, int | None]) -> Wish:
        """The wish for these arguments; they are the same ones over and over."""
        if (wish := self._wishes.get(asked)) is None:
            wish = self._wishes[asked] = self._new_wish(*asked)
        return wish

    def _new_wish(self, phase: str, timeout: float | None, wait: bool, priority: int | None) -> Wish:
        if phase:
            check_name("phase", phase)
        check_timeout(timeout)
        ask = self._priority if priority is None else _checked_priority(priority)
        settings = self._settings
        return Wish(
            self.names,
            self._lane or settings.lane,
            phase,
            settings.priority if ask is None else ask,
            timeout,
            wait,
        )


def _checked_priority(priority: int) -> int:
    if priority not in range(-10, 11):
        raise ConfigurationError(
            f"Priority {priority} is not allowed.", advice="Use a whole number, -10 to 10."
        )
    return priority


class Slice(_Slices):
    __doc__ = _Slices.__doc__

    def acquire(
        self,
        *,
        phase: str = "",
        timeout: float | None = None,
        wait: bool = True,
        priority: int | None = None,
        on_lost: Callable[[Turn], None] | None = None,
    ) -> Turn:
        """Wait for a turn and return it; somebody must `yield_` it.

        `timeout`: seconds of waiting, not counting a switch that nothing holds up. `wait=False` takes the
        turn only if it can begin at once. `on_lost` is called from another thread should the turn be lost.

        Raises NotGranted (AcquireTimeout, Busy, Holding, …) when there will be no turn; then nothing is left
        behind. StoreError when Redis was never reached; later, a Redis that is away is waited for.
        """
        ground = self._stand()
        turn = Turn(ground, self._wish(phase, timeout, wait, priority), on_lost)
        turn.acquire()
        return turn

    def turn(
        self,
        *,
        phase: str = "",
        timeout: float | None = None,
        wait: bool = True,
        priority: int | None = None,
        on_lost: Callable[[Turn], None] | None = None,
    ) -> TurnBlock:
        """A turn as a context manager or decorator: taken on entry, yielded on exit, exceptions included.

        Arguments and errors are those of `acquire`. Leaving the block of a lost turn raises LeaseLost.
        """
        acquire = partial(
            self.acquire, phase=phase, timeout=timeout, wait=wait, priority=priority, on_lost=on_lost
        )
        twin = AsyncSlice(*self.names, lane=self._lane, priority=self._priority, settings=self._given)
        acquire_async = partial(twin.acquire, phase=phase, timeout=timeout, wait=wait, priority=priority)
        return TurnBlock(acquire, acquire_async)


class AsyncSlice(_Slices):
    __doc__ = _Slices.__doc__

    async def acquire(
        self,
        *,
        phase: str = "",
        timeout: float | None = None,
        wait: bool = True,
        priority: int | None = None,
        on_lost: Callable[[AsyncTurn], None] | None = None,
    ) -> AsyncTurn:
        """Wait for a turn and return it; somebody must `yield_` it. See `Slice.acquire`.

        A cancelled `acquire` leaves nothing behind. `on_lost` is called in the event loop.
        """
        ground = self._stand()
        turn = AsyncTurn(ground, self._wish(phase, timeout, wait, priority), on_lost)
        await turn.acquire()
        return turn

    def turn(
        self,
        *,
        phase: str = "",
        timeout: float | None = None,
        wait: bool = True,
        priority: int | None = None,
        on_lost: Callable[[AsyncTurn], None] | None = None,
    ) -> AsyncTurnBlock:
        """A turn as an async context manager or decorator. See `Slice.turn`."""
        return AsyncTurnBlock(
            partial(self.acquire, phase=phase, timeout=timeout, wait=wait, priority=priority, on_lost=on_lost)
        )
