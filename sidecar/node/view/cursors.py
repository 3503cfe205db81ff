"""Cursors and numbers of shadow topics as the HTTP side sees them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from sidecar.node.parts import Running
from sidecar.node.port import ConflictError, InvalidError, NotFoundError, UnavailableError
from sidecar.node.view.serving import rooms_of
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.errors import KafkaError
from sidecar.shadow.cursor_room import CursorRoom, Numbers
from sidecar.shadow.cursors import ClosedError, Cursor, InUseError, OutOfLogError, Target

_AWAY = (UpstreamError, KafkaError, TimeoutError)


class CursorView:
    """Cursors of the shadows of one node; part of `ShadowView`."""

    def __init__(self, node: Running) -> None:
        self._node = node

    def _room_of(self, name: str) -> CursorRoom:
        room = rooms_of(self._node).cursors
        if not self._node.resolver.is_shadow(name.encode()):
            raise NotFoundError(f"there is no shadow {name}")
        return room

    async def cursors(self, name: str) -> Sequence[Cursor]:
        """Every cursor of a shadow by group, a few seconds old at most.

        Raises NotFoundError without such a shadow, ConflictError where its source is gone.
        """
        room = self._room_of(name)
        try:
            return await room.cursors.of(name)
        except ClosedError as error:
            raise ConflictError(str(error)) from None
        except _AWAY as error:
            why = str(error) or "Kafka does not answer in time"
            raise UnavailableError(f"the cursors of {name} cannot be read now: {why}") from None

    async def reset_cursor(self, name: str, group: str, to: Target, partitions: Collection[int] | None) -> Cursor:
        """Move a group's cursor, in all partitions (None) or some; it is made where there is none.

        Raises as `cursors`, ConflictError while the group has members, InvalidError for what the log does not have.
        """
        room = self._room_of(name)
        try:
            return await room.cursors.move(name, group, to, partitions)
        except (ClosedError, InUseError) as error:
            raise ConflictError(str(error)) from None
        except OutOfLogError as error:
            raise InvalidError(str(error)) from None
        except _AWAY as error:
            raise UnavailableError.unsettled(error, f"sidecar cursor list {name}") from None

    async def stats(self, name: str) -> Numbers:
        """A shadow in numbers, nothing known of one that is not there. Takes a few seconds at most. Readers, bytes and
        resets are the asked node's since it started; groups and lags the cluster's.
        """
        return await rooms_of(self._node).cursors.statistics.of(name)

    async def stats_of(self, names: Sequence[str]) -> dict[str, Numbers]:
        """Several shadows in numbers, asked for side by side."""
        return dict(zip(names, await asyncio.gather(*map(self.stats, names)), strict=True))
