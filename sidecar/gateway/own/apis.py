"""Own (0), Release (0), Watch (0): claims by request, their release, and their watching (docs/reference/own-apis.md).

Kafka's framing with request header v1 and response header v0, bodies as in `proto/sidecar/v1/control.proto`; errors
are in the body. Served even if ApiVersions did not list them. Own and Watch park their connection while they wait.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final

from sidecar.access.prospects import Prospect
from sidecar.changelog import Key
from sidecar.exclusive.bindings import NOT_YOURS
from sidecar.gateway.client import Client, ColdApi
from sidecar.gateway.own import asked
from sidecar.gateway.own.answers import GrantingRooms, forbidden, not_allowed, not_now
from sidecar.gateway.own.asked import LONGEST_WAIT_MS, TOKEN_BYTES, Asked
from sidecar.gateway.own.bodies import NOBODY, RESOURCES, BadRequestError, check_group, check_resource, serve
from sidecar.gateway.own.describe import describe_owners, last_sequence
from sidecar.gateway.own.owning import Ownerships
from sidecar.gateway.own.sets import Stand
from sidecar.gateway.owners import CatchingUp
from sidecar.gateway.rights import may_see
from sidecar.gateway.sequence_ids import NO_ID, SequenceIds
from sidecar.network.tasks import Tasks
from sidecar.protocol.api import ApiKey
from sidecar.protocol.errors import KafkaError
from sidecar.resources.requests import Wish
from sidecar.security.acls import Operation
from sidecar.v1 import control_pb2 as control

_UNKNOWN: Final = "this node knows no claims of this token: send the Own request with it again"


class OwnApis:
    """Handles the sidecar's own requests of all clients of a node."""

    def __init__(
        self, rooms: GrantingRooms, catching_up: CatchingUp, clients: Mapping[int, Client], tasks: Tasks
    ) -> None:
        self._rooms = rooms
        self.ownerships = Ownerships(rooms, clients, tasks)
        self._describe_owners = partial(describe_owners, rooms, catching_up)
        ids = SequenceIds(rooms.upstream, rooms.nodes, rooms.governed, catching_up)
        self._last_sequence = partial(last_sequence, ids, rooms.nodes, rooms.resolver)
        rooms.governed.env.watchers.append(self.ownerships.topic_changed)

    def handlers(self) -> dict[int, ColdApi]:
        """The handlers by API key."""
        no_id = partial(control.LastSequenceResponse, last_sequence_id=NO_ID)
        describing = control.DescribeOwnersRequest, control.DescribeOwnersResponse
        return {
            ApiKey.OWN: partial(serve, control.OwnRequest, control.OwnResponse, self._own),
            ApiKey.RELEASE: partial(serve, control.ReleaseRequest, control.ReleaseResponse, self._release),
            ApiKey.DESCRIBE_OWNERS: partial(serve, *describing, self._describe_owners),
            ApiKey.LAST_SEQUENCE: partial(serve, control.LastSequenceRequest, no_id, self._last_sequence),
            ApiKey.WATCH: partial(serve, control.WatchRequest, control.WatchResponse, self._watch),
        }

    async def _own(self, client: Client, request: control.OwnRequest) -> control.OwnResponse:
        """Own: claim a set of resources, all or nothing."""
        await self.ownerships.turns.begin(len(request.claims))
        wanted = asked.read(request, client, knows_first=self._rooms.governed.producers.knows_first_id)
        refused = not_allowed(wanted, client.rights, self._rooms.topics.mode) or self._hidden(wanted, client)
        return refused or self._foreign(wanted, client) or await self.ownerships.own(client, wanted)

    def _hidden(self, wanted: Asked, client: Client) -> control.OwnResponse | None:
        """The refusal of a request that names a shadow whose allow list lacks the client: the same as by ACLs."""
        hides = self._rooms.resolver.hides
        for wish in wanted.wishes.values():
            if wish.resource.topic and hides(wish.resource.topic.encode(), client.principal):
                return forbidden(str(wish))
        return None

    def _foreign(self, wanted: Asked, client: Client) -> control.OwnResponse | None:
        """Why a request may not claim for its session, if so: the producer id belongs to another client."""
        bindings, session, caller = self._rooms.governed.env.bindings, wanted.session, wanted.caller
        if self._rooms.is_anothers(wanted) or bindings.check_claim(session, caller) is not None:
            return control.OwnResponse(error=control.NOT_AUTHORIZED, message=NOT_YOURS)
        if client.is_alive():  # else nothing would undo it: the end of the connection was reported already
            bindings.claimed(session, caller, client.connection_id)
        return None

    # Release ----------------------------------------------------------------------------------------------------------

    async def _release(self, client: Client, request: control.ReleaseRequest) -> control.ReleaseResponse:
        """Release: release what a token owns, or its places in queues; can be repeated safely."""
        token, named, ownerships = request.token, _named(request), self.ownerships
        claims = ownerships.sets.get(token)
        if claims is None:
            return await self._release_unknown(client, token, named)
        wanted = [key for key in claims.asked.wishes if key in named or not named]
        if claims.is_undecided and wanted:
            await ownerships.withdraw(claims)
        lost = [claims.lost[key] for key in wanted if key in claims.lost]
        look = await ownerships.let_go(claims, [key for key in wanted if key in claims.owned])
        if look.prospect is Prospect.REFUSED:
            return control.ReleaseResponse(error=look.error, message=look.message)
        if lost:
            return control.ReleaseResponse(error=lost[0].error, message=lost[0].message)
        return control.ReleaseResponse()

    async def _release_unknown(self, client: Client, token: bytes, named: dict[Key, Wish]) -> control.ReleaseResponse:
        """Release a token without a request on this node: claims that an earlier coordinator stored under it. If there
        are none, it is no error as long as the named resources have no owner. A resource that the client may not see
        looks as if it had none.
        """
        coordinator, keys = self._rooms.coordinator, [key for key, wish in named.items() if not wish.is_written]
        if token and (keys or (coordinator.coordinates and not named)):
            try:
                await coordinator.ready()
                await coordinator.release(token, keys or None)
            except KafkaError as error:
                look = not_now(error)
                return control.ReleaseResponse(error=look.error, message=look.message)
        seen = [wish for wish in named.values() if self._may_see(client, wish)]
        for wish, owner in zip(seen, self._rooms.now(seen), strict=True):
            if owner.owner_session and owner.serving_node not in (NOBODY, self._rooms.governed.env.node_id):
                message = f"node {owner.serving_node} serves {wish}: release it there"
                return control.ReleaseResponse(error=control.NOT_SERVING, message=message)
            if owner.owner_session:
                message = f"{wish} is owned by {owner.owner_name or owner.owner_session}, not under this token"
                return control.ReleaseResponse(error=control.HELD, message=message)
        return control.ReleaseResponse()

    def _may_see(self, client: Client, wish: Wish) -> bool:
        """Whether DescribeOwners shows a resource's owner to the client."""
        topic, group = wish.resource.topic, wish.group
        if topic and not may_see(client, self._rooms.resolver, topic):
            return False
        return not group or client.rights is None or client.rights.group(Operation.DESCRIBE, group)

    # Watch ------------------------------------------------------------------------------------------------------------

    async def _watch(self, client: Client, request: control.WatchRequest) -> control.WatchResponse:
        """Watch: report changes of a token's claims."""
        if len(request.token) != TOKEN_BYTES:
            raise BadRequestError(f"a token has {TOKEN_BYTES} bytes, not {len(request.token)}")
        if request.wait_ms < 0:
            raise BadRequestError(f"wait_ms is {request.wait_ms}: give 0 or more")
        claims = self.ownerships.sets.get(request.token)
        if claims is None:
            return control.WatchResponse(error=control.UNKNOWN_RESOURCE, message=_UNKNOWN)
        changed = await self.ownerships.watch(client, claims, min(request.wait_ms, LONGEST_WAIT_MS) / 1000)
        if not changed and claims.stand is Stand.OVER:
            message = "all claims of this token are lost or released: claim with a new token"
            return control.WatchResponse(error=control.DEPOSED, message=message)
        return control.WatchResponse(changed=changed)


def _named(request: control.ReleaseRequest) -> dict[Key, Wish]:
    """What to release. Raises `BadRequestError`."""
    if len(request.token) not in (0, TOKEN_BYTES):
        raise BadRequestError(f"a token has {TOKEN_BYTES} bytes, not {len(request.token)}")
    if not request.token and not request.resources:
        raise BadRequestError("give a token or resources: nothing says what to release")
    if len(request.resources) > RESOURCES:
        raise BadRequestError(f"{RESOURCES} resources at most; without any all of the token's are released")
    check_group(request.group)
    for resource in request.resources:
        check_resource(resource)
    wishes = [Wish.of(request.group, resource) for resource in request.resources]
    return {wish.key: wish for wish in wishes}
