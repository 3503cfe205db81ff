"""The changes that people make: create topics, change policies, fence or release owners."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from metadata import GenerationChanged, MetadataUnavailable
from sidecar.changelog import MASTER_SLOT, ChangelogError, partition_slot
from sidecar.exclusive.advice import advice
from sidecar.exclusive.answers import NO_REDIS
from sidecar.exclusive.cleaning import raise_lags
from sidecar.gateway.owners import BehindError
from sidecar.node import port
from sidecar.node.parts import rooms_of
from sidecar.node.view.topics import TopicsView
from sidecar.policy.catalog import UnservedError, Wanted
from sidecar.protocol.caller import UnknownTopicError, UpstreamError
from sidecar.protocol.calls.admin import CreateTopics
from sidecar.protocol.errors import APPEND_IN_DOUBT, ErrorCode, KafkaError, error_name, no_topic
from sidecar.takeover.requests import NothingDoneError
from sidecar.takeover.slots import GenerationError
from sidecar.takeover.takeover import LostRaceError

_AWAY = (UpstreamError, KafkaError, ChangelogError, LostRaceError, TimeoutError)
_TIMEOUT_MS: Final = 15_000
_POLL_S: Final = 0.1
_ADVISED: Final = 1_000
"""The number of topics whose settings are read for warnings after a policy was set."""
_STAMPS: Final = "message.timestamp.type"
_WRONG: Final = frozenset(
    {
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.POLICY_VIOLATION,
    }
)
_REFUSED: Final = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})


class Changes(TopicsView):
    """`TopicsView` with methods that change topics, policies and owners."""

    async def create_topic(self, wanted: port.NewTopic, policy: port.Policy | None, by: str = "") -> port.Topic:
        """Create a topic, then set fields of its policy; returns when clients find it and the policy is in force.
        Raises ConflictError if the topic exists, InvalidError with Kafka's reason if Kafka refuses it: then nothing was
        done. `by`: who requests it, for the event.

        The topic is created before its policy: of two concurrent calls one is refused (409), and must not change the
        policy of the other one.
        """
        stamps = self._stamps(wanted.name, policy)
        await self._create(wanted if stamps is None else _stamped(wanted, by_brokers=stamps))
        await self._wait_for(wanted.name)
        if policy is None:
            return await self.described(wanted.name)
        try:
            return await self.merge_policy(wanted.name, policy, by=by)
        except port.PortError as error:
            raise type(error)(f"{wanted.name} is made, its policy is not set: {error}") from None

    def _stamps(self, name: str, policy: port.Policy | None) -> bool | None:
        """Return whether brokers set timestamps, by the policy or by one left from an earlier topic of this name."""
        if policy is not None and policy.log_append_time is not None:
            return policy.log_append_time
        left = rooms_of(self._node).governed.env.catalog.book.exact(name)
        return None if left is None else left.log_append_time

    async def _create(self, wanted: port.NewTopic) -> None:
        name, upstream = wanted.name, self._node.upstream
        try:
            answers = await upstream.call(upstream.controller(), CreateTopics((wanted,), _TIMEOUT_MS))
        except (UpstreamError, KafkaError, TimeoutError) as error:
            raise port.UnavailableError.unsettled(error, f"sidecar topic show {name}") from None
        error, message = answers[name]
        if error == ErrorCode.TOPIC_ALREADY_EXISTS:
            raise port.ConflictError(self._existing(name))
        if error in _WRONG:
            raise port.InvalidError(f"Kafka refuses a topic {name}: {error_name(error)}: {message}")
        if error in _REFUSED:
            raise port.ConflictError(f"Kafka does not let the node create topics: {error_name(error)}: {message}")
        if error in APPEND_IN_DOUBT:
            doubt = KafkaError(error, message or "")
            raise port.UnavailableError.unsettled(doubt, f"sidecar topic show {name}")
        if error:
            raise port.UnavailableError(f"Kafka did not create {name}: {error_name(error)}: {message}")

    def _existing(self, name: str) -> str:
        source = self._node.resolver.source(name.encode())
        if source is not None:
            return f"{name} is a shadow of {source.topic.decode()} already: see `sidecar shadow show {name}`"
        return f"there is a topic {name} already: `sidecar topic set {name}` changes its policy"

    async def _wait_for(self, name: str) -> None:
        """Wait until the topic's metadata is complete at the brokers that the node asks."""
        try:
            async with asyncio.timeout(_TIMEOUT_MS / 1000):
                while True:
                    try:
                        await self._node.upstream.whole_layout(name)
                    except (UnknownTopicError, KafkaError):
                        await asyncio.sleep(_POLL_S)
                    else:
                        return
        except (UpstreamError, TimeoutError) as error:
            raise port.UnavailableError.unsettled(error, f"sidecar topic show {name}") from None

    async def catch_up(self) -> None:
        """Return once this node has read everything that any node acknowledged before. To be awaited before questions
        for owners, serving nodes, or sequence ids.
        """
        try:
            await rooms_of(self._node).catching_up.now()
        except BehindError as error:
            raise port.UnavailableError(str(error)) from None

    async def merge_policy(
        self, name: str, change: port.Policy, match: port.IfMatch | None = None, by: str = ""
    ) -> port.Topic:
        """Set the fields of `change` that are not None; returns when the policy is in force. `by`: who requests it,
        for the event.

        An empty change governs the topic with the defaults. `name` may be a prefix. Raises NotFoundError, InvalidError,
        ConflictError, GenerationError if `match` is not true at the moment of the change.
        """
        governed = rooms_of(self._node).governed
        await self.catch_up()
        wanted_generations = await self._wanted(name, match)
        if (source := self._node.resolver.source(name.encode())) is not None:
            raise port.InvalidError(
                f"{name} is a shadow, which nobody can write to: govern its source {source.topic.decode()}"
            )
        with _policy_changing(name):
            await governed.env.catalog.set(name, change, wanted_generations, by)
        return replace(await self.described(name), warnings=await self._warnings(name))

    async def _warnings(self, name: str) -> list[str]:
        """Return what to know of the topics that a policy covers; nothing if Kafka does not answer now. Compaction of
        topics with sequence ids is delayed before anything is written to them.
        """
        try:
            names = [name]
            if name.endswith("*"):
                names = [each for each in await self.topic_names(governed=True) if each.startswith(name[:-1])]
            there = [topic.name for topic in await self.topics([each for each in names if not each.endswith("*")])]
            governed, upstream = rooms_of(self._node).governed, self._node.upstream
            with_ids = [topic for topic in there[:_ADVISED] if governed.env.deduplicates(topic)]
            raised = await raise_lags(upstream, with_ids, self._node.hooks.ownership)
            return [*raised, *await advice(upstream, there[:_ADVISED])]
        except (UpstreamError, KafkaError, TimeoutError, port.UnavailableError):
            return []

    async def described(self, name: str) -> port.Topic:
        """Return an existing topic or prefix, as it is now."""
        return (await self.topics([name], producers=True))[0]

    async def _wanted(self, name: str, match: port.IfMatch | None) -> Wanted | None:
        """Return the condition of a policy's change; raises GenerationError if the topic or policy must exist but does
        not.
        """
        if match is None:
            return None
        found = next(iter(await self.topics([name])), None)
        if match.partition is not None and found is not None:
            if found.generations is None:
                raise port.InvalidError(f"{name} has no owners of partitions: leave partition out")
            if match.partition >= found.partitions:
                raise port.InvalidError(f"{name} has {found.partitions} partitions, and no {match.partition}")
        if match.generations is not None:
            return Wanted(match.generations, match.partition)
        if found is None:
            raise port.GenerationError(f"neither a topic nor a policy {name} exists; nothing was done")
        return None

    async def delete_policy(self, name: str, match: port.IfMatch | None = None, by: str = "") -> None:
        """Delete the topic's or prefix's own policy. Raises NotFoundError if it has none, GenerationError."""
        await self.catch_up()
        with _policy_changing(name):
            deleted = await rooms_of(self._node).governed.env.catalog.delete(name, await self._wanted(name, match), by)
        if not deleted:
            raise port.NotFoundError(f"{name} has no policy of its own")

    def _check_recorded(self, name: str, partition: int | None) -> None:
        """Raise `ElsewhereError` if this node does not serve the topic, and the changelog records an owner at another
        live node. Redis may not know that owner yet if it was just emptied.
        """
        rooms = rooms_of(self._node)
        if rooms.governed.topic(name).serving:
            return
        slot = MASTER_SLOT if partition is None else partition_slot(partition)
        recorded = rooms.changelog.view.serving(name, slot)
        if recorded is not None and recorded.value.session and recorded.value.node != self._node.settings.node_id:
            self._check_node(name, recorded.value.node)

    async def fence(self, name: str, partition: int | None, generations: frozenset[int] | None = None) -> port.Topic:
        """Depose the owner for ever. `partition`: of a topic with scope partition.

        Raises NotFoundError, ConflictError without an owner, InvalidError if `partition` does not fit the scope,
        GenerationError if the generation is none of `generations` at the moment of the change, NothingDoneError
        while the topic moves between nodes.
        """
        return await self._administer(name, partition, generations, fence=True)

    async def release(self, name: str, partition: int | None, generations: frozenset[int] | None = None) -> port.Topic:
        """Clear the owner; its session may claim again. Raises what `fence` raises."""
        return await self._administer(name, partition, generations, fence=False)

    async def _administer(
        self, name: str, partition: int | None, generations: frozenset[int] | None, *, fence: bool
    ) -> port.Topic:
        await self.catch_up()
        described = await self.topics([name])
        if not described:
            raise port.NotFoundError(no_topic(name))
        if described[0].policy is None:
            raise port.ConflictError(f"{name} is not governed: nobody owns it")
        self.check_serving(name)
        try:
            topic = rooms_of(self._node).governed.topic(name)
            await topic.administer(partition, fence=fence, generations=generations)
        except ValueError as error:
            raise port.InvalidError(str(error)) from None
        except GenerationError as error:
            raise port.GenerationError.of(name, error.current) from None
        except LookupError:
            self._check_recorded(name, partition)
            raise port.ConflictError(f"nobody owns {name if partition is None else f'{name}-{partition}'}") from None
        except NothingDoneError as error:
            raise port.NothingDoneError(f"{name} cannot change its owner now: {error.message}; try again") from None
        except MetadataUnavailable as error:
            raise port.UnavailableError(f"{NO_REDIS}: {error}") from None
        except _AWAY as error:
            raise port.UnavailableError.unsettled(error, f"sidecar topic show {name}") from None
        return await self.described(name)


@contextmanager
def _policy_changing(name: str) -> Iterator[None]:
    """Translate the errors of a policy's change into those of the HTTP side."""
    try:
        yield
    except UnservedError as error:
        raise port.InvalidError(str(error)) from None
    except GenerationChanged as error:
        if error.current is None:
            why = f"{name} is changing its owner: look at its generation, and try again"
            raise port.UnavailableError(why) from None
        raise port.GenerationError.of(name, error.current) from None
    except MetadataUnavailable as error:
        raise port.UnavailableError(f"Redis does not answer, so policies cannot change now: {error}") from None
    except _AWAY as error:
        raise port.UnavailableError.unsettled(error, f"sidecar topic show {name}") from None


def _stamped(wanted: port.NewTopic, *, by_brokers: bool) -> port.NewTopic:
    """Return the topic with the timestamp setting of the policy's field, so that it applies to the first record."""
    kind = "LogAppendTime" if by_brokers else "CreateTime"
    said = wanted.configs.get(_STAMPS, kind)
    if said != kind:
        raise port.InvalidError(f"log_append_time means {_STAMPS}={kind}, and the settings say {said}: leave one away")
    return replace(wanted, configs={**wanted.configs, _STAMPS: kind})
