"""`MetadataStore`: all requests of a node to Redis, one round trip each. It has no rules: scripts decide, callers act.

Its answers arbitrate but prove nothing: Redis can lose, roll back or split all of it at any time.
"""

from __future__ import annotations

import json
import secrets
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Self

from . import scripts
from .connection import Server
from .errors import GenerationChanged, MetadataProtocolError, NodeHasLeft, NodeIdTaken
from .nodes import (
    Beat,
    HandOverAnswer,
    HandOverStatus,
    Holder,
    LiveNodes,
    Node,
    ServeAnswer,
    ServeStatus,
)
from .ownership import (
    ClaimAnswer,
    ClaimRequest,
    ClaimStatus,
    Generation,
    Ownership,
    PublishAnswer,
    ReleaseAnswer,
    ResourceState,
    check_resource,
    check_token,
)
from .policies import ANY, Policies, Policy, Under
from .replies import (
    bytes_of,
    holder_of,
    holders_of,
    int_of,
    list_of,
    ownership_of,
    pairs_of,
    states_of,
    text_of,
    texts_of,
)
from .server import ServerInfo, parse_info, require_safe_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from types import TracebackType

    from .connection import Argument

_TAKEN_FOR_A_KEY: Final = "{}"


def new_token() -> bytes:
    """Return 16 random bytes that name one request, also when it is sent again."""
    return secrets.token_bytes(16)


def new_boot_id() -> str:
    """Return a random id for one start of a process."""
    return secrets.token_hex(16)


class MetadataStore:
    """Typed access to Redis for one cluster of nodes.

    `lease_ms` is the time to live of a node's registration and of the right to serve a topic; beat every third of it.
    `command_timeout_ms` bounds every call, connecting (at most `connect_timeout_ms`) included. Belongs to the event
    loop that first uses it. Every call may raise MetadataUnavailable (try again later) and MetadataProtocolError (a
    defect).
    """

    def __init__(
        self,
        url: str,
        cluster: str = "default",
        *,
        lease_ms: int = 3000,
        connect_timeout_ms: int = 500,
        command_timeout_ms: int = 1000,
        connections: int = 4,
    ) -> None:
        """Does not connect yet. Raises ValueError for an invalid URL or cluster name."""
        if not cluster or any(brace in cluster for brace in _TAKEN_FOR_A_KEY):
            raise ValueError("a cluster name is not empty and has no braces")
        if lease_ms < 1:
            raise ValueError("a lease lasts at least 1 ms")
        self._server = Server(
            url, connect_timeout_ms=connect_timeout_ms, command_timeout_ms=command_timeout_ms, connections=connections
        )
        self._prefix = f"sidecar:{{{cluster}}}:"
        self._lease_ms = lease_ms
        self._served_version = b""
        self._served: Mapping[str, Holder] = MappingProxyType({})

    @property
    def on_script(self) -> Callable[[str, float], None]:
        """Called for every script that was answered, with its name and its duration in seconds."""
        return self._server.on_script

    @on_script.setter
    def on_script(self, listener: Callable[[str, float], None]) -> None:
        self._server.on_script = listener

    @property
    def address(self) -> str:
        """host:port or socket path, without credentials."""
        return self._server.address

    @property
    def lease_ms(self) -> int:
        """Time to live of registrations and of the right to serve, in ms."""
        return self._lease_ms

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections. Does not deregister the node: `leave` does."""
        await self._server.aclose()

    # The server

    async def ping(self) -> None:
        """Return once the server has answered."""
        if await self._server.call("PING") != b"PONG":
            raise MetadataProtocolError("the server does not answer PING with PONG")

    async def check_server(self) -> ServerInfo:
        """Return the server's facts. Raises MetadataMisconfigured unless its maxmemory-policy is noeviction."""
        info = parse_info(await self._server.info())
        require_safe_settings(info, self.address)
        return info

    async def note_kafka(self, kafka_cluster_id: str) -> None:
        """Store the id of the nodes' Kafka cluster, so that a node notices another cluster's Redis."""
        await self._server.call("SET", self._key("kafka"), kafka_cluster_id)

    async def kafka(self) -> str | None:
        """Return the id of the Kafka cluster that a node stored last; None if Redis has none."""
        reply = await self._server.call("GET", self._key("kafka"))
        return None if reply is None else text_of(reply)

    async def identity(self, proposed: str) -> str:
        """Return the random name of this Redis in this cluster; set it to `proposed` if there is none. An emptied Redis
        has lost it.
        """
        await self._server.call("SET", self._key("identity"), proposed, "NX")
        return text_of(await self._server.call("GET", self._key("identity")))

    # Nodes and the right to serve

    async def heartbeat(self, node: Node, topics: Collection[str] = (), owners: Collection[Ownership] = ()) -> Beat:
        """Register or renew `node`, the topics it serves, and assert the owners it knows of them.

        Records older than what Redis knows are ignored there, so an assertion that is a beat old harms nothing. Take
        the time for `Lease.granted` before calling. Raises NodeIdTaken (another live process has the id; nothing was
        changed) and NodeHasLeft.
        """
        keys = self._keys("nodes", "served", "leases", "served:version", "owners", "policies:version", "pulse")
        keys.append(self._key(f"gone:{node.boot}"))
        args: list[Argument] = [node.node_id, node.boot, node.encode(), self._lease_ms, new_token().hex()]
        args += (self._served_version, len(topics), *topics)
        for owner in owners:
            args += (owner.resource, owner.wire)
        reply = list_of(await self._server.run(scripts.HEARTBEAT, keys, args))
        status = text_of(reply[0])
        if status == "left":
            raise NodeHasLeft(node.node_id)
        if status == "taken":
            rival = Node.decode(node.node_id, bytes_of(reply[1]))
            raise NodeIdTaken(node.node_id, rival.host, rival.port, int_of(reply[2]))
        _, nodes, version, served, lost, restored, policy_version = reply
        if served is not None:
            self._served = holders_of(served)
            self._served_version = bytes_of(version)
        alive = {int_of(node_id): Node.decode(int_of(node_id), bytes_of(entry)) for node_id, entry in pairs_of(nodes)}
        live = LiveNodes(MappingProxyType(alive), self._served, int_of(policy_version))
        return Beat(live, holders_of(lost), int_of(restored))

    async def leave(self, node_id: int, boot: str) -> int:
        """Deregister a node: its id, served topics and claims are free at once. Returns the number of these topics."""
        keys = self._keys("nodes", "served", "leases", "served:version", "claims", f"gone:{boot}", "pulse")
        return int_of(await self._server.run(scripts.LEAVE, keys, (node_id, boot, new_token().hex())))

    async def serve(self, topic: str, node_id: int, boot: str, *, last_node: int | None) -> ServeAnswer:
        """Take or renew the right to serve a topic for `lease_ms`.

        `last_node` is the node that the newest `Serving` of the changelog names, None where the topic was never served:
        if Redis was just emptied, that node has the time of one lease to assert that it still serves the topic.
        """
        check_resource(topic)
        keys = self._keys("nodes", "served", "leases", "served:version", "pulse")
        last = "" if last_node is None else last_node
        args = (topic, node_id, boot, self._lease_ms, new_token().hex(), last)
        status, holder, holder_boot, wait_ms = texts_of(await self._server.run(scripts.SERVE, keys, args))
        return ServeAnswer(ServeStatus(status), holder_of(holder, holder_boot), int(wait_ms))

    async def hand_over(self, topic: str, node_id: int, boot: str, *, to: int | None = None) -> HandOverAnswer:
        """Give a topic to node `to`, or (None) to the first that asks. Does nothing if another live node serves it."""
        check_resource(topic)
        keys = self._keys("nodes", "served", "leases", "served:version")
        args = (topic, node_id, boot, "" if to is None else to, self._lease_ms, new_token().hex())
        status, holder, holder_boot = texts_of(await self._server.run(scripts.HAND_OVER, keys, args))
        return HandOverAnswer(HandOverStatus(status), holder_of(holder, holder_boot))

    # Ownership

    async def claim(self, request: ClaimRequest) -> ClaimAnswer:
        """Ask whether the session may own the resource; after an unknown outcome send the same request again."""
        token = request.token.hex()
        keys = self._keys("owners", "tickets", "claims", f"used:{token}", "nodes", "served", "leases")
        args = (
            request.resource,
            token,
            request.boot,
            request.session,
            # What no script looks into: for people who read Redis.
            Ownership(
                request.resource,
                Generation(0),
                0,
                request.session,
                name=request.name,
                mode=request.mode,
                node_id=request.node_id,
            ).details(),
            request.mode.value,
            "" if request.asked is None else request.asked,
            "" if request.known is None else request.known.wire,
            request.lease_ms,
            request.topic or "",
            "" if request.returns_to is None else request.returns_to,
        )
        status, generation, record, first, second = list_of(await self._server.run(scripts.CLAIM, keys, args))
        outcome = ClaimStatus(text_of(status))
        busy, elsewhere = outcome is ClaimStatus.BUSY, outcome is ClaimStatus.ELSEWHERE
        return ClaimAnswer(
            outcome,
            Generation(int_of(generation)) if generation else None,
            ownership_of(request.resource, record),
            rival=text_of(first) if busy else None,
            wait_ms=int_of(second) if busy else 0,
            server=holder_of(text_of(first), text_of(second)) if elsewhere else None,
        )

    async def abandon(self, resource: str, token: bytes) -> bool:
        """Give up a claim in progress. Returns False if this token has no claim to it (any more)."""
        check_token(token)
        return await self._server.run(scripts.ABANDON, self._keys("claims"), (resource, token.hex())) == 1

    async def publish(self, record: Ownership, token: bytes | None = None) -> PublishAnswer:
        """Store a committed ownership and end the claim with that token; without a token it is a refill."""
        args = (record.resource, record.wire, "" if token is None else token.hex())
        accepted, current = list_of(await self._server.run(scripts.PUBLISH, self._keys("owners", "claims"), args))
        return PublishAnswer(accepted == 1, Ownership.decode(record.resource, bytes_of(current)))

    async def release(self, owned: Ownership) -> ReleaseAnswer:
        """Clear the owner if Redis has the record `owned`, or an earlier one of it; the generation stays.

        Raises ValueError where `owned` has no session.
        """
        if owned.session is None:
            raise ValueError(f"{owned.resource!r} has no owner to release")
        args = (owned.resource, owned.generation, owned.position, owned.session, owned.details())
        released, current = list_of(await self._server.run(scripts.RELEASE, self._keys("owners"), args))
        return ReleaseAnswer(released == 1, Ownership.decode(owned.resource, bytes_of(current)))

    async def ownership(self, resource: str) -> ResourceState:
        """Owner and claim in progress of one resource, as of one moment."""
        check_resource(resource)
        reply = await self._server.run(scripts.OWNERSHIP, self._keys("owners", "claims"), (resource,))
        return next(states_of(reply))

    async def ownerships(self) -> tuple[ResourceState, ...]:
        """Owner and claim in progress of everything Redis knows of, sorted by resource."""
        reply = await self._server.run(scripts.OWNERSHIP, self._keys("owners", "claims"), ())
        return tuple(sorted(states_of(reply), key=lambda state: state.resource))

    # The queue

    async def keep_queue(
        self, topic: str, node_id: int, boot: str, sessions: Sequence[str], *, resource: str | None = None
    ) -> bool:
        """Keep the queue of a topic, or for a `resource` of it; False where this node does not
        serve it.
        """
        check_resource(topic)
        keys = self._keys("nodes", "served", "leases", "queues")
        args = (topic, node_id, boot, json.dumps(sessions) if sessions else "", resource or topic)
        return await self._server.run(scripts.KEEP_QUEUE, keys, args) == 1

    async def queue(self, resource: str) -> list[str]:
        """Return the last stored queue of a topic, or of a partition of it."""
        check_resource(resource)
        kept = await self._server.run(scripts.QUEUE, self._keys("queues"), (resource,))
        return [] if kept is None else [str(session) for session in json.loads(bytes_of(kept))]

    # Sequence ids

    async def keep_snapshot(
        self, topic: str, partition: int, topic_id: bytes, order: tuple[int, int], value: bytes
    ) -> bool:
        """Store a copy of a partition's sequence ids; False if there is a newer one. `order`: the offset up to which it
        covers the log, and its rising number; 0 to 2^63-1 each.
        """
        check_resource(topic)
        args = (f"{topic}/{partition}", topic_id.hex(), *order, value)
        return await self._server.run(scripts.KEEP_SNAPSHOT, self._keys("snapshots"), args) == 1

    async def snapshots(self, topic: str, topic_id: bytes, partitions: Sequence[int]) -> dict[int, bytes]:
        """Return the stored copies of some partitions' sequence ids."""
        check_resource(topic)
        args = (topic_id.hex(), *[f"{topic}/{partition}" for partition in partitions])
        found = list_of(await self._server.run(scripts.SNAPSHOTS, self._keys("snapshots"), args))
        return {index: bytes_of(kept) for index, kept in zip(partitions, found, strict=True) if kept is not None}

    # Topics that are gone

    async def forget(
        self, topic: str, node_id: int, boot: str, generation: int, resources: Sequence[str], partitions: Sequence[int]
    ) -> bool:
        """Forget a topic that Kafka has no more, with the right to serve it; False, and nothing is changed, where
        another live node serves it, or somebody claims it or owns it under more than `generation`. `resources`: the
        topic and those of its partitions that had owners; `partitions`: those that may have had sequence ids.
        """
        check_resource(topic)
        names = ("nodes", "served", "leases", "served:version", "owners", "claims", "tickets", "queues", "snapshots")
        fields = [f"{topic}/{partition}" for partition in partitions]
        args = (topic, node_id, boot, new_token().hex(), generation, len(resources), *resources, *fields)
        return await self._server.run(scripts.FORGET, self._keys(*names), args) == 1

    # Policies

    async def set_policy(
        self, name: str, body: str, known: Policies, token: bytes, *, only_new: bool = False, under: Under = ANY
    ) -> int:
        """Set the policy of a topic or prefix; returns the version of the change. `known`: all the changelog has.

        `only_new`: where there is one already nothing is changed, and 0 returned. Raises GenerationChanged where
        `under` does not hold.
        """
        if not body:
            raise ValueError("an empty body stands for a deleted policy")
        return await self._change_policy(name, body, known, token, "new" if only_new else "", under)

    async def delete_policy(self, name: str, known: Policies, token: bytes, *, under: Under = ANY) -> int:
        """Delete a policy, also one that is not there; returns the version of this change. Raises as `set_policy`."""
        return await self._change_policy(name, "", known, token, "", under)

    async def refill_policies(self, known: Policies) -> bool:
        """Replace the catalog where Redis knows fewer versions than `known`; False where nothing had to be done."""
        keys = self._keys("policies", "policies:version")
        replaced, _ = list_of(await self._server.run(scripts.REFILL_POLICIES, keys, known.arguments()))
        return replaced == 1

    async def policies(self) -> Policies:
        """All policies as of one moment."""
        keys = self._keys("policies", "policies:version")
        version, entries = list_of(await self._server.run(scripts.POLICIES, keys, ()))
        by_name: dict[str, Policy] = {}
        for name, entry in pairs_of(entries):
            its_version, _, body = text_of(entry).partition(" ")
            by_name[text_of(name)] = Policy(body, int(its_version))
        return Policies(int_of(version), MappingProxyType(by_name))

    async def _change_policy(self, name: str, body: str, known: Policies, token: bytes, only: str, under: Under) -> int:
        check_resource(name)
        check_token(token)
        keys = self._keys("policies", "policies:version", f"used:{token.hex()}", "owners", "claims")
        wanted = "" if under.generations is None else " ".join(map(str, sorted(under.generations))) or "none"
        condition = (wanted, str(under.known), " ".join(under.resources))
        reply = await self._server.run(scripts.SET_POLICY, keys, (name, body, only, *condition, *known.arguments()))
        if reply == b"rising":
            raise GenerationChanged(None)
        if isinstance(reply, bytes) and reply.startswith(b"is "):
            raise GenerationChanged(int_of(reply[3:]))
        return int_of(reply)

    # Keys and replies

    def _key(self, name: str) -> str:
        return self._prefix + name

    def _keys(self, *names: str) -> list[Argument]:
        return [self._prefix + name for name in names]
