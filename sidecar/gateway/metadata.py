"""ApiVersions (0-5) and Metadata (0-13): answered with nodes instead of brokers.

Clients see the live nodes as the brokers of the cluster, at the addresses that the nodes publish for the client's
listener (KIP-103): replicas = in-sync replicas = [leader], the controller is the node with the lowest number, the
cluster id is upstream's. A node without that listener is left out; partitions that only it can serve have no leader.
Topics, errors, leader epochs, authorized operations and missing coordinators are requested from upstream each time, so
an answer is as fresh as a broker's. A topic is answered the same by id as by name: a shadow has its own id, with the
partitions of its source.
"""

import asyncio
from collections.abc import Generator, Iterable, Mapping
from dataclasses import replace
from uuid import UUID

from sidecar.cluster.nodes import NodeDirectory, Placement
from sidecar.cluster.resolver import INTERNAL_PREFIX, NameResolver, TopicKind
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.cluster.view import NO_LEADER
from sidecar.gateway.client import Client
from sidecar.gateway.logins import with_logins
from sidecar.network.request import Exchange, Request
from sidecar.network.slices import in_slices
from sidecar.network.tasks import Tasks
from sidecar.protocol import api_versions, limits, metadata
from sidecar.protocol.api import OWN_KEYS, OWN_SOFTWARE
from sidecar.protocol.api_versions import NamedBroker, VersionRange
from sidecar.protocol.calls.admin import FEATURES
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.metadata import Broker, ClusterState, MetadataRequest, PartitionState, TopicState
from sidecar.protocol.primitives import RequestReader, new_tuple

_ALL_FEATURES_FROM = max(FEATURES)
"""The first version of ApiVersions whose answers name all features; in later ones they are the same."""
_FEATURES_S = 30.0
"""Seconds between two requests for the cluster's features, which only an operator changes."""
_LISTENER_NOT_FOUND_FROM = 6
"""The first version of Metadata with an error for a leader without the client's listener (KIP-103)."""
_OWN_RANGES = [api_versions.VersionRange(key, 0, 0) for key in sorted(OWN_KEYS)]


class ClusterApi:
    """Describes the virtual cluster to all clients of a node. `served` is set once upstream's APIs are known."""

    def __init__(self, upstream: KafkaUpstream, nodes: NodeDirectory, resolver: NameResolver, tasks: Tasks) -> None:
        self.served: list[VersionRange] = []
        self._features: dict[int, bytes] = {}
        self._features_until = 0.0
        self._upstream = upstream
        self._nodes = nodes
        self._resolver = resolver
        self._tasks = tasks

    def handle_api_versions(self, client: Client, request: Request) -> None:
        """Answer ApiVersions. Hot: every connection begins with it, and no broker has to be asked."""
        client.software, named = api_versions.decode_request(
            request.frame.buffer, request.body, request.frame.end, request.version
        )
        exchange = Exchange(client.connection, request)
        client.connection.expect(exchange)
        error = ErrorCode.NONE
        if request.version >= 3 and not client.software.is_accepted():
            error = ErrorCode.INVALID_REQUEST
        elif client.is_known:  # before a login, brokers do not look at what a client means
            error = named.refusal_by(NamedBroker(self._upstream.view.cluster_id, self._nodes.me.id))
        if error:
            exchange.answer([api_versions.encode_answer(request.correlation_id, request.version, [], error=error)])
            return
        served = self.served if client.login is None else with_logins(self.served)
        ranges = [*served, *_OWN_RANGES] if client.software.name.startswith(OWN_SOFTWARE) else served
        features = api_versions.NO_FEATURES
        if api_versions.may_announce_features(self.served):
            features = self._features.get(min(request.version, _ALL_FEATURES_FROM), features)
            self._keep_features()
        exchange.answer([api_versions.encode_answer(request.correlation_id, request.version, ranges, features)])

    async def learn_features(self) -> None:
        """Request the cluster's features in each version in which clients ask for them: brokers answer versions
        differently. Without an answer the known ones are kept.
        """
        for version in FEATURES:
            features = await self._upstream.features(version)
            if features is not None:
                self._features[version] = features

    def _keep_features(self) -> None:
        """Request the features again if they are older than `_FEATURES_S`."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._features_until:
            self._features_until = loop.time() + _FEATURES_S
            self._tasks.start(self.learn_features())

    async def handle_metadata(self, client: Client, exchange: Exchange, request: Request) -> None:
        """Ask upstream, and replace brokers by nodes."""
        reader = RequestReader(request.frame.buffer, request.body, request.frame.end, limits.elements(request.key))
        reader.tags(request.version >= 9)
        fields = await in_slices(metadata.request_steps(reader, request.version))
        if fields.faulty:
            state = replace(await self._upstream.metadata(MetadataRequest(())), topics=fields.faulty)
            state = replace(state, error=ErrorCode.INVALID_REQUEST)
        else:
            state = await self._upstream.metadata(self._with_sources(fields))
            known = await self._states_by_name(state, fields)
            state = replace(state, topics=self._topics_for(state, known, fields, client))
        virtual = await in_slices(self.virtual_steps(state, client.listener, request.version))
        answer = await in_slices(metadata.answer_steps(request.correlation_id, request.version, virtual))
        if not client.connection.closed:
            exchange.answer([answer])

    def _with_sources(self, fields: MetadataRequest) -> MetadataRequest:
        """The request to upstream, with the sources of shadows. If it names shadows or internal topics, it creates
        nothing.
        """
        names, resolver = fields.topics, self._resolver
        shadows = [name.encode() for name in names or () if resolver.is_shadow(name.encode())]
        if not shadows and not any(name.encode().startswith(INTERNAL_PREFIX) for name in names or ()):
            return fields
        sources = {source.topic.decode() for shadow in shadows if (source := resolver.source(shadow)) is not None}
        topics = (*(names or ()), *sorted(sources.difference(names or ())))
        return replace(fields, topics=topics, allow_auto_topic_creation=False)

    async def _states_by_name(self, state: ClusterState, fields: MetadataRequest) -> dict[str, TopicState]:
        """The topics that were found, by name; for a request by ids, with the sources of shadows."""
        known = {topic.name: topic for topic in state.topics}
        return (await self._sources_of(known)) | known if fields.ids else known

    async def _sources_of(self, names: Iterable[str]) -> dict[str, TopicState]:
        """The sources of the shadows among some topics."""
        found = (self._resolver.source(name.encode()) for name in names)
        sources = sorted({source.topic.decode() for source in found if source is not None})
        if not sources:
            return {}
        return {
            each.name: each for each in (await self._upstream.metadata(MetadataRequest(tuple(sources), False))).topics
        }

    async def shown(self, topics: Iterable[TopicState], listener: str) -> tuple[TopicState, ...]:
        """Partly described topics, as clients of a listener see them in Metadata."""
        found = [*topics]
        known = await self._sources_of(topic.name for topic in found)
        shadows = self._resolver.is_shadow
        kept = tuple(self._shadow(topic, known) if shadows(topic.name.encode()) else topic for topic in found)
        state = ClusterState(0, (), None, NO_LEADER, kept)
        return (await in_slices(self.virtual_steps(state, listener))).topics

    def _topics_for(
        self, state: ClusterState, known: Mapping[str, TopicState], fields: MetadataRequest, client: Client
    ) -> tuple[TopicState, ...]:
        """The requested topics; shadows have the leader epochs and errors of their sources. The list of all topics
        omits shadows that the client may not read, as Kafka does by ACLs, and closed ones: a list that Kafka answers
        has no topic with error 3, and Sarama and KafkaJS fail at one.
        """
        resolver = self._resolver
        if not resolver.has_shadows:
            return state.topics
        asked = None if fields.topics is None or fields.ids else frozenset(fields.topics)
        topics: list[TopicState] = []
        for topic in state.topics:
            name = topic.name.encode()
            if asked is not None and topic.name not in asked:
                continue
            if resolver.hides(name, client.principal):
                if fields.topics is not None:
                    client.note_refusal(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
                    topics.append(_unreadable(topic, by_id=bool(fields.ids)))
                continue
            shown = self._shadow(topic, known) if resolver.is_shadow(name) else topic
            if fields.topics is not None or shown.error != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                topics.append(shown)
        return tuple(topics)

    def _shadow(self, topic: TopicState, known: Mapping[str, TopicState]) -> TopicState:
        source = self._resolver.source(topic.name.encode())
        log = None if source is None else known.get(source.topic.decode())
        if source is None or source.is_closed or log is None or (log.partitions and log.topic_id != source.topic_id):
            return replace(topic, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, partitions=())
        partitions = {found.partition: found for found in log.partitions}
        both = tuple(partitions[own.partition] for own in topic.partitions if own.partition in partitions)
        return replace(topic, error=topic.error or log.error, partitions=both)

    def virtual_steps(
        self, state: ClusterState, listener: str, version: int = _LISTENER_NOT_FOUND_FROM
    ) -> Generator[None, None, ClusterState]:
        """The cluster with nodes instead of brokers, for clients of a listener in a version of Metadata."""
        placement = self._nodes.at(listener)
        topics: list[TopicState] = []
        sliced = 0
        for topic in state.topics:
            topics.append(self._virtual_topic(topic, placement, version) if topic.partitions else topic)
            sliced += 1 + len(topic.partitions)
            if sliced >= limits.BOUNDS.turn:
                sliced = 0
                yield
        return replace(state, brokers=brokers_of(placement), controller=placement.controller, topics=tuple(topics))

    def _virtual_topic(self, topic: TopicState, placement: Placement, version: int) -> TopicState:
        """The topic with nodes as leaders. The node that serves a governed topic leads it; if that node lacks the
        listener, no partition has a leader, as on a broker (`KRaftMetadataCache`).
        """
        name, error, serving = topic.name.encode(), 0, None
        if self._resolver.kind(name) is TopicKind.GOVERNED:
            serving = self._nodes.serves(name)
            if serving not in placement.nodes:
                knows_error = version >= _LISTENER_NOT_FOUND_FROM
                error = ErrorCode.LISTENER_NOT_FOUND if knows_error else ErrorCode.LEADER_NOT_AVAILABLE
                serving = NO_LEADER
        partitions: list[PartitionState] = []
        for p in topic.partitions:
            if p.leader >= 0:
                own = 0 if p.error == ErrorCode.REPLICA_NOT_AVAILABLE else p.error
                leader = placement.of_partition(name, p.partition) if serving is None else serving
                partitions.append(new_tuple(PartitionState, (p.partition, error or own, leader, p.leader_epoch)))
            elif p.error == ErrorCode.LISTENER_NOT_FOUND and version < _LISTENER_NOT_FOUND_FROM:
                partitions.append(p._replace(error=ErrorCode.LEADER_NOT_AVAILABLE))
            else:
                partitions.append(p)
        return replace(topic, partitions=tuple(partitions))


def brokers_of(placement: Placement) -> tuple[Broker, ...]:
    """The nodes, as clients see them."""
    return tuple(Broker(node.id, node.host, node.port) for node in placement.nodes.values())


def _unreadable(topic: TopicState, *, by_id: bool) -> TopicState:
    """The answer for a topic that a client may not describe: without id if requested by name, and the reverse."""
    hidden = replace(topic, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED, internal=False, partitions=())
    return replace(hidden, name="") if by_id else replace(hidden, topic_id=UUID(int=0))
