"""Merges the answers of brokers, for APIs that each broker answers about itself. A client that asks all nodes, as tools
do, sees everything once.

Lists (of groups, of transactional ids) are asked of all brokers, and have those for which FindCoordinator names this
node (`Placement.of_key`): clients look for them there. When a broker is lost the metadata is refreshed, because its
groups may have moved; if the broker is still listed, a list answers 14 COORDINATOR_LOAD_IN_PROGRESS, which clients
retry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from sidecar.cluster.nodes import NodeDirectory
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.gateway import asking
from sidecar.gateway.client import Client
from sidecar.network.request import Exchange, Request
from sidecar.network.slices import in_slices
from sidecar.protocol.caller import DisconnectedError, UpstreamError
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.limits import BOUNDS
from sidecar.protocol.metadata import MetadataRequest
from sidecar.protocol.schema import Message, Values

_Answer = TypeVar("_Answer")
_ASK_AGAIN: Final = {"error_code": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


@dataclass(frozen=True, slots=True)
class Listed:
    """A list that each broker answers: the field of its elements, and the field of an element's key. `merge` completes
    the answer with the brokers' other fields.
    """

    elements: str
    key: str
    merge: Callable[[list[Values]], Values] = lambda _answers: {}

    def keep(self, answers: list[Values], is_here: Callable[[str], bool]) -> Generator[None, None, None]:
        """Remove the elements of other nodes, in slices."""
        for answer in answers:
            listed: list[Values] = answer[self.elements]
            kept: list[Values] = []
            for first in range(0, len(listed), BOUNDS.turn):
                kept += [each for each in listed[first : first + BOUNDS.turn] if is_here(each[self.key])]
                yield
            answer[self.elements] = kept

    def joined(self, answers: list[Values]) -> Values:
        """All lists as one, each key once (a group that moves may be listed by two brokers); empty after an error."""
        values = in_front(answers)
        found: dict[str, Values] = {}
        if not values["error_code"]:
            for answer in answers:
                found |= {element[self.key]: element for element in answer[self.elements]}
        return values | {self.elements: list(found.values())} | self.merge(answers)


class MergedApi:
    """Handles the requests of all clients of a node."""

    def __init__(self, upstream: KafkaUpstream, nodes: NodeDirectory) -> None:
        self._upstream = upstream
        self._view = upstream.view
        self._nodes = nodes

    async def ask_all(
        self, client: Client, brokers: Callable[[], Iterable[int]], ask: Callable[[int], Awaitable[_Answer]]
    ) -> list[_Answer]:
        """The answers of all these brokers. Raises `DisconnectedError`."""
        await self._upstream.brokers()
        answers, lost = await _settled(map(ask, brokers()))
        if lost is not None and not client.connection.closed:
            await self._upstream.metadata(MetadataRequest(()))
            answers, lost = await _settled(map(ask, brokers()))
        if lost is not None:
            raise lost
        return answers

    async def handle_list(
        self, message: Message, form: Listed, client: Client, exchange: Exchange, request: Request
    ) -> None:
        """Answer with the groups or transactional ids that clients find at this node."""
        version = request.version
        await asking.read_all(request)
        try:
            answers = await self.ask_all(
                client, lambda: self._view.brokers, lambda broker_id: client.ask(broker_id, request)
            )
        except UpstreamError:
            exchange.note_error(_ASK_AGAIN["error_code"])
            await asking.answer(exchange, message, _ASK_AGAIN)
            return
        placement = self._nodes.at(client.listener)
        if len(answers) == len(placement.nodes) == 1:
            exchange.answer([answers[0].view(answers[0].start, answers[0].end)])
            return
        found = [await asking.read(message, answer, version) for answer in answers]
        await in_slices(form.keep(found, lambda key: placement.of_key(key.encode()) == self._nodes.me.id))
        await asking.answer(exchange, message, form.joined(found))


async def _settled(asked: Iterable[Awaitable[_Answer]]) -> tuple[list[_Answer], DisconnectedError | None]:
    """The answers that arrived, and the error of one that did not."""
    answers: list[_Answer] = []
    lost: DisconnectedError | None = None
    for answer in await asyncio.gather(*asked, return_exceptions=True):
        if isinstance(answer, DisconnectedError):
            lost = answer
        elif isinstance(answer, BaseException):
            raise answer
        else:
            answers.append(answer)
    return answers, lost


def in_front(answers: list[Values]) -> Values:
    """The fields before the lists of an answer: the longest throttle time and the first error."""
    return {
        "throttle_time_ms": max((answer.get("throttle_time_ms", 0) for answer in answers), default=0),
        "error_code": next((code for answer in answers if (code := answer.get("error_code", 0))), 0),
    }
