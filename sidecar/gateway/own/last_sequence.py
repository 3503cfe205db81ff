"""LastSequence (0): the highest sequence ids of a producer name that are in the log, where it goes on (PIP-6).

Takes over a topic that no node serves, because only the serving node knows the ids; otherwise it changes nothing.
"""

from typing import Final

from sidecar.cluster.nodes import NodeDirectory
from sidecar.gateway.client import Client
from sidecar.gateway.own.bodies import BadRequestError, answer, check_name, decode
from sidecar.gateway.rights import may_see
from sidecar.gateway.sequence_ids import NO_ID, IdsError, SequenceIds, Why
from sidecar.network.request import Exchange, Request
from sidecar.v1 import control_pb2 as control

KNOW_S: Final = 10.0
"""How long LastSequence waits for ids that are being read."""
_WHY: Final = {
    Why.NO_TOPIC: control.UNKNOWN_RESOURCE,
    Why.NO_IDS: control.UNKNOWN_RESOURCE,
    Why.ELSEWHERE: control.NOT_SERVING,
    Why.NOT_NOW: control.UNAVAILABLE,
}


class LastSequenceApi:
    """Answers LastSequence of all clients of a node."""

    def __init__(self, ids: SequenceIds, nodes: NodeDirectory) -> None:
        self._ids = ids
        self._nodes = nodes

    async def handle(self, client: Client, exchange: Exchange, head: Request) -> None:
        """The highest sequence ids of a producer name that are in the log: where it goes on."""
        try:
            request = decode(control.LastSequenceRequest, head)
            if not request.topic:
                raise BadRequestError("topic is empty: sequence ids are known by topic")
            check_name(request.producer_name)
            if not may_see(client, request.topic):
                raise IdsError.no_topic(request.topic)
            response = await self._last_sequence(request.topic, request.producer_name.encode())
        except BadRequestError as error:
            response = control.LastSequenceResponse(error=control.INVALID_REQUEST, message=str(error))
        except IdsError as error:
            message = error.message_for(self._nodes.at(client.listener).nodes)
            response = control.LastSequenceResponse(error=_WHY[error.why], message=message)
        if response.error != control.NONE:
            response.last_sequence_id = NO_ID
        answer(exchange, head, response.error, response)

    async def _last_sequence(self, topic: str, name: bytes) -> control.LastSequenceResponse:
        known = await self._ids.of(topic, KNOW_S)
        last = known.last(name)
        return control.LastSequenceResponse(last_sequence_ids=last, last_sequence_id=known.resume(last))
