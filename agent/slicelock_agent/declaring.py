"""Makes this node's slices known to the pool, or finds out that they cannot be."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

from slicelock.errors import ConfigurationError, SlicelockError, StoreError
from slicelock.picture import SENSELESS_REMEDY, Picture, SliceView
from slicelock.wire import Declare, DeclareReply, Status
from slicelock_agent.store import Runner

log = logging.getLogger("slicelock_agent")

Declaration = tuple[dict[str, list[str]], Mapping[str, Any]]
"""A slice's nodes with their devices, and its settings."""


class Declarer:
    """Declares slices of one node in one pool, and can do so again when Redis has lost them.

    `given`: their devices as an operator names them.
    """

    def __init__(
        self,
        store: Runner,
        pool: str,
        node: str,
        slices: Mapping[str, tuple[str, ...]],
        given: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        self._store, self._pool, self._node, self._slices = store, pool, node, slices
        self._given = slices if given is None else given
        self._declared: dict[str, Declaration] = {}
        self._told: dict[str, str] = {}  # why a slice cannot be declared again: said once, until it changes

    async def check(self, name: str) -> None:
        """Find out whether `declare` would be refused, as far as that can be known; changes nothing."""
        view = await self._known(name)
        if view is not None and not self._has_its_devices(name, view):
            self._refuse_unless_alone(name, view)

    async def declare(self, name: str) -> None:
        """Have the slice declared with this node's devices; ConfigurationError if it cannot be."""
        devices = self._slices[name]
        view = await self._known(name)
        if view is None:
            nodes, settings = self._declared.get(name, ({self._node: list(devices)}, {}))
            await self._send(name, nodes, settings)
        elif not self._has_its_devices(name, view):
            self._refuse_unless_alone(name, view)
            await self._send(name, {self._node: list(devices)}, view.settings)
        else:
            self._declared[name] = ({node: list(those) for node, those in view.nodes.items()}, view.settings)

    async def declare_again(self, lost: Collection[str]) -> bool:
        """Declare what Redis knows no more, and log it; why one cannot be, too. Whether any was declared."""
        before, self._told = self._told, {}
        for name in sorted(lost):
            try:
                await self.declare(name)
                log.info("slice %s was not known any more; it is declared again", name)
            except SlicelockError as failure:
                self._told[name] = str(failure)
                if before.get(name) != self._told[name]:
                    log.warning("%s", failure)
        return len(self._told) < len(lost)

    def _has_its_devices(self, name: str, view: SliceView) -> bool:
        """Whether it is declared with this node's devices, by their lasting names or as they were given."""
        return view.nodes.get(self._node) in (self._slices[name], self._given[name])

    async def _known(self, name: str) -> SliceView | None:
        reply = await self._store.run(Status(name, 0))
        if reply.outcome != "OK":
            return None
        seen = Picture.of(self._pool, reply.picture)
        if why := seen.senseless.get(f"slice {name}"):
            raise StoreError(f"The record of slice {name} makes no sense: {why}.", advice=SENSELESS_REMEDY)
        return next((one for one in seen.slices if one.name == name), None)

    def _refuse_unless_alone(self, name: str, view: SliceView) -> None:
        if not view.nodes:
            raise ConfigurationError(
                f"Slice {name} is declared without nodes, as a plain lease.",
                advice=f"Forget it first: slicelock slice forget {name}",
            )
        if self._node not in view.nodes:
            raise ConfigurationError(
                f"Slice {name} is declared for {', '.join(view.nodes)}, not for node {self._node}.",
                advice="Declare it with all its nodes (slicelock slice declare), or set SLICELOCK_NODE.",
            )
        if len(view.nodes) > 1:
            raise ConfigurationError(
                f"Slice {name} is declared with {', '.join(view.nodes[self._node])} on node {self._node}, "
                f"this agent has {', '.join(self._slices[name])}.",
                advice="Start it with those devices, or declare the slice anew (slicelock slice declare).",
            )

    async def _send(self, name: str, nodes: dict[str, list[str]], settings: Mapping[str, Any]) -> None:
        reply: DeclareReply = await self._store.run(Declare(name, nodes, dict(settings)))
        if reply.outcome == "OVERLAP":
            raise ConfigurationError(
                f"Slice {name} cannot be declared: {reply.reason or f'slice {reply.slice} has its devices'}.",
                advice="A device belongs to one slice only.",
            )
        if reply.outcome != "OK":
            raise ConfigurationError(
                f"Slice {name} is declared with other devices and in use: {reply.reason}.",
                advice="Wait until it is free, or start the agent with its devices.",
            )
        self._declared[name] = (nodes, settings)
