"""The sequence ids of a topic, by producer name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from sidecar.gateway.sequence_ids import IdsError, KnownIds, SequenceIds, Why
from sidecar.node import port
from sidecar.node.parts import Running
from sidecar.node.view.serving import rooms_of

_NAMES_PER_TURN: Final = 16
"""Producer names in one turn: each is looked up in every partition."""
_KNOW_S: Final = 5.0
"""How long a question about sequence ids waits for them to be read."""


class IdsView:
    """Sequence ids of topics that this node serves, or nobody does. `check_serving`: raises where another one does."""

    def __init__(self, node: Running, check_serving: Callable[[str], None]) -> None:
        self._node = node
        self._check_serving = check_serving

    async def producers(
        self, name: str, most: int, behind: tuple[int, bytes] | None = None
    ) -> tuple[Sequence[port.Producer], tuple[int, bytes] | None]:
        """The `most` producer names that wrote to a topic last, newest first, of those after a place (Unix seconds of
        the last record, name); and the place to go on after, None at the end.

        Takes a topic over that nobody serves. Raises NotFoundError without such a topic, ConflictError without
        deduplication, ElsewhereError, UnavailableError while the sequence ids are being read.
        """
        return await newest_of(await self._known(name), most, behind)

    async def producer(self, name: str, producer: str) -> port.ProducerIds:
        """What is known of one name. Raises as `producers`, and NotFoundError for a name that is not known."""
        known, key = await self._known(name), producer.encode()
        marks = {index: mark for index, mark in known.ids.marks_of(key).items() if index in known.partitions}
        if not marks:
            raise _unknown_name(name, producer)
        last = {index: mark.id for index, mark in marks.items()}
        return port.ProducerIds(
            producer,
            known.resume(last),
            last,
            offsets={index: mark.offset if mark.offset >= 0 else None for index, mark in marks.items()},
            last_seen_ms={index: mark.seen * 1000 for index, mark in marks.items()},
            in_use=known.ids.is_in_use(key),
        )

    async def forget_producer(self, name: str, producer: str) -> None:
        """Forget a name and its sequence ids for good. Raises as `producer`, and ConflictError while it is in use."""
        known, key = await self._known(name), producer.encode()
        if known.ids.is_in_use(key):
            raise port.ConflictError(f"a connected session writes to {name} under {producer!r}: stop it first")
        try:
            forgotten = await known.ids.forget(key)
        except TimeoutError as error:
            raise port.UnavailableError(str(error)) from None
        if not forgotten:
            raise _unknown_name(name, producer)

    async def _known(self, name: str) -> KnownIds:
        """The sequence ids of a topic that this node serves, or that nobody does."""
        node, rooms = self._node, rooms_of(self._node)
        try:
            return await SequenceIds(node.upstream, node.nodes, rooms.governed, rooms.catching_up).of(name, _KNOW_S)
        except IdsError as error:
            if error.why is Why.NO_TOPIC:
                raise port.NotFoundError(str(error)) from None
            if error.why is Why.NO_IDS:
                raise port.ConflictError(str(error)) from None
            if error.why is Why.ELSEWHERE:
                self._check_serving(name)
                raise port.NothingDoneError(str(error)) from None
            raise port.UnavailableError(str(error)) from None


async def newest_of(
    known: KnownIds, most: int, behind: tuple[int, bytes] | None = None
) -> tuple[list[port.Producer], tuple[int, bytes] | None]:
    """The `most` names that wrote last, of those after a place; and the place to go on after, None at the end."""
    found: list[port.Producer] = []
    names, last_place = await known.newest(most, behind)
    for number, name in enumerate(names, start=1):
        last = known.last(name)
        found.append(port.Producer(name.decode(errors="replace"), known.resume(last), last))
        if number % _NAMES_PER_TURN == 0:
            await asyncio.sleep(0)
    return found, last_place


def _unknown_name(topic: str, producer: str) -> port.NotFoundError:
    return port.NotFoundError(f"no sequence id of a producer {producer!r} is known in {topic}")
