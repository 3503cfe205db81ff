"""APIs that pass as they are: ACLs, quotas and SCRAM credentials.

DescribeAcls (0-3) and DescribeClientQuotas (0-1): any broker. CreateAcls, DeleteAcls (0-3), AlterClientQuotas (0-1),
DescribeUserScramCredentials and AlterUserScramCredentials (0): the controller. None of them names a broker or an
address in its answer, so nothing is rewritten; a broker that is lost before a change was sent is replaced by another,
afterwards the client's connection is closed, as the broker's would be.
"""

from sidecar.cluster.upstream import KafkaUpstream
from sidecar.gateway import asking
from sidecar.gateway.client import Client
from sidecar.network.request import Exchange, Request


class OpaqueApi:
    """Passes requests and answers between one client and one broker."""

    def __init__(self, upstream: KafkaUpstream) -> None:
        self._upstream = upstream

    async def handle_any(self, client: Client, exchange: Exchange, request: Request) -> None:
        """A question that every broker answers alike."""
        upstream = self._upstream
        answer = await asking.first_that_answers(client, upstream, None, request, harmless=True)
        exchange.answer([answer.view(answer.start, answer.end)])

    async def handle_controller(self, client: Client, exchange: Exchange, request: Request) -> None:
        """A change, sent once; upstream's own NOT_CONTROLLER (41) makes the client look for the controller again."""
        upstream = self._upstream
        answer = await asking.first_that_answers(client, upstream, upstream.controller, request, harmless=False)
        exchange.answer([answer.view(answer.start, answer.end)])
