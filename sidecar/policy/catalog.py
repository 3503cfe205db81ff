"""The policies of a cluster of nodes: requested, stored, and applied by every node before anything is granted.

Redis gives each change its version, the changelog stores it (so it outlives Redis), and every heartbeat has
the version that a node applies.

A name has its own writer in the changelog (`fencing/record_writer.py`). Each change opens its next epoch, fences the
earlier ones, and reads the changelog up to that marker. So it builds on every change that was written before. No
record that a dead node left in flight is appended after it: compaction would keep that one, as the key's last.
"""

import asyncio
import random
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import Final, NamedTuple, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from metadata import MetadataUnavailable
from metadata.nodes import LiveNodes
from metadata.ownership import AccessMode
from metadata.policies import ANY, Policies, Policy, Under
from sidecar.access.services import NodeServices
from sidecar.changelog import ChangelogError, Entry, Key, Kind, Record, SlotName, StampedJournal
from sidecar.fencing.record_writer import RecordWriter
from sidecar.network.backoff import Retry
from sidecar.policy.policies import PolicyBook, PolicyFields, is_by_client
from sidecar.protocol.caller import FencedError, UpstreamError
from sidecar.protocol.calls.admin import AlterTopicConfig
from sidecar.protocol.errors import ErrorCode, KafkaError, no_topic
from sidecar.takeover.slots import SlotScope, generation_of
from sidecar.v1 import state_pb2 as state

ResultT = TypeVar("ResultT")

_SEEN_S: Final = 5.0
_APPLIED_S: Final = 10.0
"""How long a live node may take to apply a policy, unless two leases are longer."""
_STAMP_S: Final = 10.0
_CHANGE_S: Final = 30.0
"""The limit for one change with all its tries, if other nodes change the same policy."""
_FINISH_S: Final = 1.0
"""How long other nodes leave a decision to the node that made it. No guarantee depends on it: Kafka settles the order.
"""
_PATIENCE_S: Final = 10.0
"""The upper limit of that time, if nodes fence each other."""
_SLOT: Final = SlotName("policy")
"""The slot of policy changes, distinct from those of a topic of the same name."""


class Wanted(NamedTuple):
    """The generations under which a policy may change: the topic's, or those of a partition."""

    wanted: frozenset[int]
    partition: int | None = None


Generations: TypeAlias = Wanted | None
_POLL_S: Final = 0.05
_A_CLIENT: Final = "a client that asks for a mode"
_RANDOM: Final = random.Random()
_OPERATORS_GOVERN: Final = (
    "{topic} has no policy, and on this node no client makes one by asking for a mode; an operator may:"
    " sidecar topic set {topic} --access shared"
)


class _Undone(NamedTuple):
    """A decision that Redis has and the changelog does not: its version, since when this node knows it, and how long
    this node leaves it to others (seconds).
    """

    version: int
    since: float
    patience: float = _FINISH_S


class _Written(NamedTuple):
    """A policy's record, its fields, and its form for Redis. Each is computed once: there may be thousands of policies,
    and they change one at a time.
    """

    entry: Entry[state.Policy]
    fields: PolicyFields
    policy: Policy


def _written(entry: Entry[state.Policy]) -> _Written:
    fields = PolicyFields.of_record(entry.value)
    body = fields.body(by_client=entry.value.by_client)
    return _Written(entry, fields, Policy(body, max(1, entry.value.version)))


class UnservedError(ValueError):
    """A policy value that this version does not serve."""


async def _no_beat() -> None:
    """The heartbeat before the node is a member of its cluster: it does nothing."""


class PolicyCatalog:
    """`book`: the policies that this node applies. `version`: the newest version in it, without deleted policies, as
    nodes that start later never read those. `live`: the other nodes by the last heartbeat.
    `is_applied_everywhere`: every live node applies the policies that this one applies; before that nothing may be
    granted.
    """

    def __init__(
        self,
        services: NodeServices,
        default: PolicyFields | None = None,
        changed: Callable[[str, str, int, str], None] = lambda name, body, at_ms, by: None,
    ) -> None:
        """`default`: this node's setting for topics that no policy covers. `changed` is called after this node changed
        a policy, with its name; its body, empty if it was deleted; the time (Unix ms), no later than any node acts on
        it; and the author, empty if unknown.
        """
        self.book = PolicyBook({}, default)
        self.clients_govern = True
        """Whether a client that asks for a mode makes the policy of a topic that has none."""
        self._default = default
        self.version = 0
        self._offset = -1
        """The offset of the last record of these policies."""
        self._highest = 0
        """The newest version that was ever read: none is given twice."""
        self.by_clients: frozenset[str] = frozenset()
        """The topics whose own policy a client made by asking for a mode, and no operator has changed since."""
        self.live: LiveNodes | None = None
        self.is_applied_everywhere = True
        self.beat: Callable[[], Awaitable[None]] = _no_beat
        """Sends a heartbeat now."""
        self.settings_changed: Callable[[], None] = lambda: None
        """Called when the settings of topics in Kafka may have changed."""
        self._changed = changed
        self._services = services
        self._writer = RecordWriter(services.upstream, services.cluster, services.changelog, _SLOT)
        self._changing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Locks by name: changes of one policy run one after the other, as they would fence each other."""
        self._undone: dict[str, _Undone] = {}
        self._read: dict[str, _Written] = {}

    def heard(self, live: LiveNodes) -> None:
        """Note the other nodes by a heartbeat's answer."""
        self.live = live
        self._compare()

    def _compare(self) -> None:
        """Find out whether all nodes apply the same policies. The version alone does not show that: records may be
        appended in another order than that of their versions. The offset alone does not either: the log may have lost
        records and continued.
        """
        nodes = () if self.live is None else self.live.nodes.values()
        others = (node for node in nodes if node.node_id != self._services.node_id)
        self.is_applied_everywhere = all(
            node.position >= self._offset and node.policy_version >= self.version for node in others
        )

    def read(self) -> PolicyBook:
        """Apply the policies of the changelog."""
        before, self._read = self._read, {}
        for entry in self._services.changelog.view.policies():
            known = before.get(entry.key.topic)
            self._read[entry.key.topic] = known if known is not None and known.entry is entry else _written(entry)
        self.book = PolicyBook({name: each.fields for name, each in self._read.items()}, self._default)
        self.by_clients = frozenset(name for name, each in self._read.items() if each.entry.value.by_client)
        self.version = max((each.entry.value.version for each in self._read.values()), default=0)
        self._offset = max((each.entry.offset for each in self._read.values()), default=-1)
        self._highest = max(self._highest, self.version)
        for name in self._undone.keys() & self._read.keys():
            del self._undone[name]
        self._compare()
        return self.book

    async def set(self, name: str, change: PolicyFields, generations: Generations = None, by: str = "") -> PolicyFields:
        """Merge a change into the policy of a topic or prefix. `by`: the author, for the history. Raises
        `UnservedError`, `MetadataUnavailable`, `ChangelogError`, `KafkaError`, TimeoutError, and `GenerationChanged`
        if `generations` are given and the topic's, or the partition's, is another at the moment of the change.
        """
        return await self._until_not_fenced(name, lambda: self._set(name, change, generations, by))

    async def _set(self, name: str, change: PolicyFields, generations: Generations, by: str) -> PolicyFields:
        writer = await self._writer.open(name)
        under = await self._under(name, generations)
        before = self.book.exact(name)
        was = before or PolicyFields()
        merged = was.merged(change)
        restamps = change.log_append_time is True or bool(merged.log_append_time) != bool(was.log_append_time)
        if restamps and name.endswith("*"):
            raise UnservedError("log_append_time is a setting of each topic in Kafka: name one topic, not a prefix")
        version = await self._decide(name, merged, under)
        if restamps:  # only after Redis has decided: timestamps that brokers set stay
            try:
                await self._stamp_records(name, by_brokers=bool(merged.log_append_time))
            except BaseException:
                with suppress(MetadataUnavailable):
                    await self._decide(name, before, ANY)
                raise
        await self._write_down(writer, name, merged, version, by)
        return merged

    async def govern(self, topic: str) -> KafkaError | None:
        """Give a topic the policy `shared`, because a client requests a mode, unless it has a policy. Returns the
        error, or None when every live node applies the policy.
        """
        if topic.startswith("__"):
            message = f"{topic} is an internal topic: it cannot be governed; leave the mode out of client.id"
            return KafkaError(ErrorCode.POLICY_VIOLATION, message)
        if not self.clients_govern and self.book.effective(topic) is None:
            return KafkaError(ErrorCode.POLICY_VIOLATION, _OPERATORS_GOVERN.format(topic=topic))
        try:
            async with self._alone(topic):
                if self.book.effective(topic) is None:
                    await self._services.upstream.layout(topic)
                    known = await self._services.store.policies()
                    there = [name for name in known.by_name if _covers(name, topic)]
                    for name in there:  # the changelog may not have it here yet
                        await self._finish(name, known.by_name[name])
                    if there or not await self._begin(topic, PolicyFields(AccessMode.SHARED)):
                        return _unsettled(topic)
        except FencedError:
            return _unsettled(topic)
        except KafkaError as error:
            return KafkaError(error.code, error.message)
        except (MetadataUnavailable, UpstreamError, ChangelogError, TimeoutError) as error:
            message = f"{topic} cannot become governed now, which the mode in client.id requires: {error}; try again"
            return KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, message)
        return None

    def _alone(self, name: str) -> asyncio.Lock:
        return self._changing.setdefault(name, asyncio.Lock())

    async def _decide(self, name: str, policy: PolicyFields | None, under: Under, *, by_client: bool = False) -> int:
        """Get the version of a change from Redis; `policy` None deletes."""
        store, known, token = self._services.store, self._known(), secrets.token_bytes(16)
        if policy is None:
            return await store.delete_policy(name, known, token, under=under)
        return await store.set_policy(name, policy.body(by_client=by_client), known, token, under=under)

    async def _until_not_fenced(self, name: str, change: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Make a change, and repeat it on top if another node changes the same policy at the same time."""
        async with self._alone(name):
            retry = Retry(f"change of the policy of {name}", _CHANGE_S)
            while True:
                try:
                    return await change()
                except FencedError as error:
                    await retry.pause(error)

    async def _begin(self, topic: str, policy: PolicyFields) -> bool:
        """Store a topic's first policy; returns False if another node was first. Redis chooses one node: several nodes
        that try at the same time would fence each other.
        """
        store, token, body = self._services.store, secrets.token_bytes(16), policy.body(by_client=True)
        version = await store.set_policy(topic, body, self._known(), token, only_new=True)
        if version:
            # If `_finish` fails, the next one to ask finishes without a wait.
            self._undone[topic] = _Undone(version, -inf)
            await self._finish(topic, Policy(body, version), lambda: self.book.effective(topic) is None, _A_CLIENT)
        return bool(version)

    async def _finish(
        self, name: str, policy: Policy, is_wanted: Callable[[], bool] | None = None, by: str = ""
    ) -> None:
        """Store a policy that Redis has and the changelog does not, because a node died or Kafka took no record.
        Otherwise it would not be in force, and would block others. Raises `FencedError` if another node was faster.
        `is_wanted` is called after the changelog was read.
        """
        now = asyncio.get_running_loop().time()
        undone = self._undone.get(name)
        if undone is None or undone.version != policy.version:
            patience = _FINISH_S if undone is None else undone.patience
            self._undone[name] = _Undone(policy.version, now, patience)
            return
        decided, by_client = PolicyFields.of_body(policy.body), is_by_client(policy.body)
        stamping = 0.0 if decided.log_append_time is None else _STAMP_S  # Kafka is asked first
        if now - undone.since <= undone.patience + stamping:
            return
        try:
            writer = await self._writer.open(name)
            if self.book.exact(name) is None and (is_wanted is None or is_wanted()):
                wanted = replace(decided, log_append_time=None)  # this setting in Kafka was not made
                version = await self._decide(name, wanted, ANY, by_client=by_client)
                await self._write_down(writer, name, wanted, version, by, by_client=by_client)
        except FencedError:
            patience = min(_PATIENCE_S, undone.patience * _RANDOM.uniform(1.0, 3.0))
            self._undone[name] = undone._replace(since=asyncio.get_running_loop().time(), patience=patience)
            raise
        self._undone.pop(name, None)

    async def delete(
        self, name: str, generations: Generations = None, by: str = "", is_wanted: Callable[[], bool] = lambda: True
    ) -> bool:
        """Delete a policy; returns whether that was done: there was one, and `is_wanted` returned True after every
        earlier change was read. Raises what `set` raises.
        """
        there = self.book.exact(name) is not None
        return there and await self._until_not_fenced(name, lambda: self._delete(name, generations, by, is_wanted))

    async def _delete(self, name: str, generations: Generations, by: str, is_wanted: Callable[[], bool]) -> bool:
        writer = await self._writer.open(name)
        if self.book.exact(name) is None or not is_wanted():
            return False
        under = await self._under(name, generations)
        await self._decide(name, None, under)
        await self._write_down(writer, name, None, by=by)
        return True

    async def hold(self, topic: str) -> None:
        """Make sure that a topic keeps its policy, behind the fence of its master slot and before anybody may write: a
        deletion that began before the fence, as no client was left, is read here or refused by Kafka. That counts for
        all partitions with their own owners. Raises `KafkaError` 5 LEADER_NOT_AVAILABLE if the topic has no policy, and
        what `RecordWriter.open` raises.
        """
        if topic in self.by_clients:
            async with self._alone(topic):
                await self._writer.open(topic)
        if self.book.effective(topic) is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic} has no policy any more; try again")

    async def _under(self, name: str, generations: Generations) -> Under:
        """The condition that Redis checks in one step with the change: a claim is before or after both."""
        if generations is None:
            return ANY
        changelog, wanted = self._services.changelog, generations.wanted
        await changelog.tailer.read_to_end(_SEEN_S)
        scope = (
            SlotScope(name) if generations.partition is None else SlotScope.of_partition(name, generations.partition)
        )
        slots = {slot for slot in changelog.view.opened(name) if scope.overlaps(slot)}
        resources = {scope.resource, *[SlotScope(name, slot).resource for slot in slots]}
        return Under(wanted, generation_of(changelog.view, scope), tuple(sorted(resources)))

    async def refill(self) -> None:
        """Refill an emptied Redis."""
        with suppress(MetadataUnavailable):  # the next heartbeat that arrives tries again
            await self._services.store.refill_policies(self._known())

    async def _stamp_records(self, topic: str, *, by_brokers: bool) -> None:
        """Let brokers set record timestamps, or let writers do so. Then calls `settings_changed`."""
        kind = "LogAppendTime" if by_brokers else "CreateTime"
        wanted = AlterTopicConfig(topic, "message.timestamp.type", kind)
        done = await self._services.upstream.call(None, wanted, timeout=_STAMP_S)
        if done.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise UnservedError(f"log_append_time is a setting of the topic in Kafka, and {no_topic(topic)}")
        if done.error:
            raise KafkaError(done.error, f"message.timestamp.type of {topic}: {done.message or 'refused'}")
        self.settings_changed()

    async def _write_down(
        self,
        writer: StampedJournal,
        name: str,
        policy: PolicyFields | None,
        version: int = 0,
        by: str = "",
        *,
        by_client: bool = False,
    ) -> None:
        """Store a change, wait until every node applies it, and report it; `policy` None: it is deleted."""
        changelog = self._services.changelog
        at_ms = changelog.clock.now_ms()
        value = None if policy is None else policy.to_record(version, at_ms, by_client=by_client)
        record = Record(Key(Kind.POLICY, name), value)
        await changelog.tailer.reached(await writer.append([record]), timeout=_SEEN_S)
        try:
            await self._applied()
        finally:
            self._changed(name, "" if policy is None else policy.body(), at_ms, by)

    async def _applied(self) -> None:
        """Wait until every live node applies what this one does; nodes without a lease do not count. Raises
        TimeoutError if a live node does not: until it does, no claim is granted.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + max(_APPLIED_S, 2 * self._services.store.lease_ms / 1000)
        await self.beat()
        while not self.is_applied_everywhere:
            if loop.time() > deadline:
                raise TimeoutError("a live node does not apply the new policy yet")
            await asyncio.sleep(_POLL_S)
            await self.beat()

    def _known(self) -> Policies:
        by_name = {name: each.policy for name, each in self._read.items()}
        return Policies(max([self._highest, *[policy.version for policy in by_name.values()]]), by_name)


def _unsettled(topic: str) -> KafkaError:
    """The error while another node stores the policy."""
    return KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"the policy of {topic} is not settled yet")


def _covers(name: str, topic: str) -> bool:
    """Whether a policy with this name or pattern covers a topic."""
    return topic.startswith(name[:-1]) if name.endswith("*") else name == topic
