"""Own (0), Release (0), Watch (0): claims by request, their release, and their watching (docs/reference/own-apis.md).

Kafka's framing with request header v1 and response header v0, bodies as in `proto/sidecar/v1/control.proto`; errors
are in the body. Served even if ApiVersions did not list them. Own and Watch park their connection while they wait.
"""

import asyncio
from functools import partial
from typing import Final

from sidecar.access.prospects import Prospect
from sidecar.changelog import Kind
from sidecar.cluster.nodes import NodeDirectory
from sidecar.cluster.resolver import NameResolver
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.exclusive.governed_topics import GovernedTopics
from sidecar.exclusive.owning import TopicOwners
from sidecar.gateway.client import Client
from sidecar.gateway.handler import ColdApi
from sidecar.gateway.own import asked
from sidecar.gateway.own.answers import Rooms, forbidden, not_allowed, not_now
from sidecar.gateway.own.asked import LONGEST_WAIT_MS, TOKEN_BYTES, Asked, Target, check_group
from sidecar.gateway.own.bodies import NOBODY, RESOURCES, BadRequestError, fault_of, serve
from sidecar.gateway.own.describe import DescribeOwnersApi, LastSequenceApi
from sidecar.gateway.own.owning import Ownerships
from sidecar.gateway.own.tickets import Stand, Ticket
from sidecar.gateway.owners import CatchingUp
from sidecar.gateway.rights import may_see
from sidecar.gateway.sequence_ids import SequenceIds
from sidecar.network.tasks import Tasks
from sidecar.protocol import api
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.session import Session
from sidecar.resources.coordinator import Coordinator
from sidecar.security.acls import Operation
from sidecar.v1 import control_pb2 as control

_UNKNOWN: Final = "this node knows no claims of this token: send the Own request with it again"


class OwnApis:
    """Handles the sidecar's own requests of all clients of a node."""

    def __init__(
        self,
        upstream: KafkaUpstream,
        nodes: NodeDirectory,
        resolver: NameResolver,
        governed: GovernedTopics,
        coordinator: Coordinator,
        catching_up: CatchingUp,
        tasks: Tasks,
    ) -> None:
        self._rooms = Rooms(upstream, nodes, resolver, governed, TopicOwners(governed), coordinator)
        self.ownerships = Ownerships(self._rooms, tasks)
        self._describe = DescribeOwnersApi(upstream, nodes, resolver, governed, coordinator, catching_up)
        self._last = LastSequenceApi(SequenceIds(upstream, nodes, governed, catching_up), nodes, resolver)
        governed.watchers.append(self.ownerships.topic_changed)
        coordinator.listeners.append(self.ownerships.token_changed)

    def handlers(self) -> dict[int, ColdApi]:
        """The handlers by API key."""
        return {
            api.OWN: partial(serve, control.OwnRequest, control.OwnResponse, self._own),
            api.RELEASE: partial(serve, control.ReleaseRequest, control.ReleaseResponse, self._release),
            api.DESCRIBE_OWNERS: self._describe.handle,
            api.LAST_SEQUENCE: self._last.handle,
            api.WATCH: partial(serve, control.WatchRequest, control.WatchResponse, self._watch),
        }

    async def _own(self, client: Client, request: control.OwnRequest) -> control.OwnResponse:
        """Own: claim a set of resources, all or nothing."""
        await self.ownerships.turns.begin(len(request.claims))
        knows_first = request.producer_id != 0 or self._knows_first()
        wanted = asked.read(request, client, knows_first=knows_first)
        refused = not_allowed(wanted, client.rights, self._rooms.topics.mode) or self._hidden(wanted, client)
        return refused or self._foreign(wanted, client) or await self.ownerships.own(client, wanted)

    def _hidden(self, wanted: Asked, client: Client) -> control.OwnResponse | None:
        """The refusal of a request that names a shadow whose allow list lacks the client: the same as by ACLs."""
        hides = self._rooms.resolver.hides
        names = (target for target in wanted.targets if target.topic)
        return next((forbidden(str(each)) for each in names if hides(each.topic.encode(), client.principal)), None)

    def _foreign(self, wanted: Asked, client: Client) -> control.OwnResponse | None:
        """Why a request may not claim for its session, if so: the producer id belongs to another client."""
        bindings = self._rooms.governed.bindings
        refused = bindings.check_claim(wanted.session, wanted.caller)
        if refused is not None:
            return control.OwnResponse(error=control.NOT_AUTHORIZED, message=refused.message)
        if client.is_alive():  # else nothing would undo it: the end of the connection was reported already
            bindings.claimed(wanted.session, wanted.caller, client.connection_id)
        return None

    def _knows_first(self) -> bool:
        """Whether producer id 0 was given to a client, by this node or by one that recorded its session."""
        if self._rooms.governed.producers.gave_first_id:
            return True
        view = self._rooms.governed.changelog.view
        owned = (*view.entries(Kind.OWNERSHIP), *view.entries(Kind.CLAIM))
        return any(Session(entry.value.session).producer_id == 0 for entry in owned)

    # Release ----------------------------------------------------------------------------------------------------------

    async def _release(self, client: Client, request: control.ReleaseRequest) -> control.ReleaseResponse:
        """Release: release what a token owns, or its places in queues; can be repeated safely."""
        token, targets = request.token, _targets(request)
        ticket = self.ownerships.tickets.get(token)
        if ticket is None:
            return await self._release_unknown(client, token, targets)
        named = frozenset(targets or ticket.asked.targets)
        wanted = [target for target in ticket.asked.targets if target in named]
        if ticket.stand in (Stand.TRYING, Stand.WAITING) and wanted:
            await self.ownerships.withdraw(ticket)
        lost = [ticket.lost[target] for target in wanted if target in ticket.lost]
        look = await self.ownerships.let_go(ticket, [target for target in wanted if target in ticket.owned])
        if look.prospect is Prospect.REFUSED:
            return control.ReleaseResponse(error=look.error, message=look.message)
        if lost:
            return control.ReleaseResponse(error=lost[0].error, message=lost[0].message)
        return control.ReleaseResponse()

    async def _release_unknown(self, client: Client, token: bytes, targets: list[Target]) -> control.ReleaseResponse:
        """Release a token without a request on this node: claims that an earlier coordinator stored under it. If there
        are none, it is no error as long as the named resources have no owner. A resource that the client may not see
        looks as if it had none.
        """
        coordinator, keys = self._rooms.coordinator, [target.key for target in targets if not target.is_written]
        if token and (keys or (coordinator.coordinates and not targets)):
            try:
                await coordinator.ready()
                await coordinator.release(token, keys or None)
            except KafkaError as error:
                look = not_now(error)
                return control.ReleaseResponse(error=look.error, message=look.message)
        seen = [target for target in targets if self._may_see(client, target)]
        for target, found in zip(seen, self._rooms.now(seen), strict=True):
            if found.owner_session and found.serving_node not in (NOBODY, self._rooms.governed.node_id):
                message = f"node {found.serving_node} serves {target}: release it there"
                return control.ReleaseResponse(error=control.NOT_SERVING, message=message)
            if found.owner_session:
                message = f"{target} is owned by {found.owner_name or found.owner_session}, not under this token"
                return control.ReleaseResponse(error=control.HELD, message=message)
        return control.ReleaseResponse()

    def _may_see(self, client: Client, target: Target) -> bool:
        """Whether DescribeOwners shows a target's owner to the client."""
        if target.topic and not may_see(client, self._rooms.resolver, target.topic):
            return False
        return not target.group or client.rights is None or client.rights.group(Operation.DESCRIBE, target.group)

    # Watch ------------------------------------------------------------------------------------------------------------

    async def _watch(self, client: Client, request: control.WatchRequest) -> control.WatchResponse:
        """Watch: report changes of a token's claims."""
        if len(request.token) != TOKEN_BYTES:
            raise BadRequestError(f"a token has {TOKEN_BYTES} bytes, not {len(request.token)}")
        if request.wait_ms < 0:
            raise BadRequestError(f"wait_ms is {request.wait_ms}: give 0 or more")
        ownerships = self.ownerships
        ticket = ownerships.tickets.get(request.token)
        if ticket is None:
            return control.WatchResponse(error=control.UNKNOWN_RESOURCE, message=_UNKNOWN)
        ownerships.connect(ticket, client)
        now = asyncio.get_running_loop().time
        until = now() + min(request.wait_ms, LONGEST_WAIT_MS) / 1000
        with ownerships.attendance.attended(ticket):
            while (
                not ticket.news and ticket.stand is not Stand.OVER and client.is_alive() and (left := until - now()) > 0
            ):
                await ownerships.attendance.park(client, ticket, left)
        return self._changed(ticket)

    def _changed(self, ticket: Ticket) -> control.WatchResponse:
        changed = ticket.heard()
        if not changed and ticket.stand is Stand.OVER:
            message = "all claims of this token are lost or released: claim with a new token"
            return control.WatchResponse(error=control.DEPOSED, message=message)
        return control.WatchResponse(changed=changed)


def _targets(request: control.ReleaseRequest) -> list[Target]:
    """The targets to release. Raises `BadRequestError`."""
    if len(request.token) not in (0, TOKEN_BYTES):
        raise BadRequestError(f"a token has {TOKEN_BYTES} bytes, not {len(request.token)}")
    if not request.token and not request.resources:
        raise BadRequestError("give a token or resources: nothing says what to release")
    if len(request.resources) > RESOURCES:
        raise BadRequestError(f"{RESOURCES} resources at most; without any all of the token's are released")
    check_group(request.group)
    for resource in request.resources:
        fault = fault_of(resource)
        if fault:
            raise BadRequestError(fault)
    return [Target.of(request.group, resource) for resource in request.resources]
