"""Random programs. A step is right for what the program has done so far, more often than not, and wrong on purpose."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from tests.sim.kafka.differential.steps import Ask, Fault, Outside, Program, Records, Step, Symbol, Together
from tests.sim.kafka.tables import served

_TOPICS: Final = 3
_PARTITIONS: Final = 2
_IDEMPOTENT: Final = (0, 1)
_TRANSACTIONAL: Final = (2, 3)
_GROUPS: Final = 2
_STATES: Final = ("Empty", "Ongoing", "CompleteCommit", "CompleteAbort", "PrepareAbort", "Weird")
_CONFIGS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("cleanup.policy", ("delete", "compact", "compact,delete", "shred")),
    ("retention.ms", ("604800000", "-1", "-2", "many")),
    ("retention.bytes", ("-1", "1000000")),
    ("message.timestamp.type", ("CreateTime", "LogAppendTime", "Never")),
    ("message.timestamp.before.max.ms", ("3600000", "9223372036854775807", "-1")),
    ("max.message.bytes", ("1048588", "400", "-1")),
    ("min.insync.replicas", ("1", "2", "3", "0")),
    ("segment.ms", ("604800000", "0")),
    ("min.compaction.lag.ms", ("0", "1000", "-1")),
    ("delete.retention.ms", ("86400000", "0", "-5")),
    ("unclean.leader.election.enable", ("false", "maybe")),
    ("no.such.setting", ("1",)),
)  # fmt: skip
_KEYS: Final = tuple(name for name, _ in _CONFIGS)


class Generator:
    """Of one program."""

    def __init__(self, seed: int, release: tuple[int, int], brokers: int) -> None:
        self.rng = random.Random(f"{seed} {brokers}")
        self.spans = served(release)
        self.release = release
        self.brokers = brokers
        self.joined: dict[int, set[int]] = {group: set() for group in range(_GROUPS)}
        self.down = 0

    # Choices ---------------------------------------------------------------------------------------------------------

    def chance(self, of: float) -> bool:
        return self.rng.random() < of

    def version(self, key: int, first: int = 0) -> int:
        low, high = self.spans[key]
        return self.rng.randint(max(low, first), high)

    def topic(self) -> int:
        """The last one is seldom there."""
        return self.rng.choices(range(_TOPICS), (6, 4, 1))[0]

    def partition(self) -> int:
        return self.rng.choices((0, 1, 2, 7), (8, 4, 1, 0.3))[0]

    def named(self, topic: int, field: str = "name") -> dict[str, Any]:
        return {field: Symbol("topic", topic), "topic_id": Symbol("topic id", topic)}

    def leader(self, topic: int, partition: int) -> tuple[Any, ...]:
        """Whom to ask: now and then a follower, or anybody."""
        kind = self.rng.choices(("leader", "follower", "any"), (20, 1, 1))[0] if self.brokers > 1 else "leader"
        return ("any",) if kind == "any" else (kind, topic, partition)

    def producer(self) -> int:
        return self.rng.choice((*_IDEMPOTENT, *_TRANSACTIONAL))

    def times(self, count: int) -> tuple[int, ...]:
        base = self.rng.choice((60_000, 60_000, 60_000, 86_400_000 * 3, 5_000, -7_200_000))
        return tuple(base + self.rng.choice((0, 0, 1000, -1000, 17)) for _ in range(count))

    # Logs ------------------------------------------------------------------------------------------------------------

    def records(self, topic: int, partition: int, producer: int | None, *, transactional: bool) -> Records:
        rng = self.rng
        wrong = producer is not None and self.chance(0.35)
        sequence = again = None
        epoch = 0
        if wrong:
            kind = rng.randrange(4)
            if kind == 0:
                again = rng.choice((0, 0, 1, 2, 4, 5, 6))
            elif kind == 1:
                sequence = rng.choice((1, 2, -1, -2, 10, -10))
            else:
                epoch = rng.choice((-1, 1, 2, -2))
        damage = rng.choice(("crc", "magic", "count", "control", "base", "short", "sequence"))
        return Records(
            topic, partition, self.times(rng.choice((1, 1, 1, 2, 3, 5))), producer, epoch, sequence or 0, again,
            transactional, rng.choices((0, 1, 2, 3, 4), (8, 1, 1, 1, 1))[0],
            key=rng.choice((None, 0, 1, 2)), damage=damage if self.chance(0.04) else "",
        )  # fmt: skip

    def produce(self) -> list[Step]:
        rng = self.rng
        producer = self.producer() if self.chance(0.8) else None
        transactional = producer in _TRANSACTIONAL and self.chance(0.85)
        acks = rng.choices((-1, 1, 0, 2), (12, 3, 1, 0.3))[0]
        topic = self.topic()
        partitions = rng.sample(range(3), 2) if self.brokers == 1 and self.chance(0.15) else [self.partition()]
        data: list[dict[str, Any]] = []
        for each in partitions:
            records = self.records(topic, each, producer, transactional=transactional)
            data.append({"index": each, "records": records})
        name = Symbol("transactional id", producer) if transactional and producer is not None else None
        if self.chance(0.02):
            name = Symbol("transactional id", rng.choice(_TRANSACTIONAL))
        fields = {
            "transactional_id": name, "acks": acks, "timeout_ms": 5000,
            "topic_data": [{**self.named(topic), "partition_data": data}],
        }  # fmt: skip
        version = min(self.version(0), 11) if transactional else self.version(0)
        at = self.leader(topic, partitions[0]) if acks else ("leader", topic, partitions[0])
        return [Ask(0, version, at, fields)]

    def fetch(self) -> list[Step]:
        rng = self.rng
        topic = self.topic()
        several = self.brokers == 1 and self.chance(0.3)
        partitions = rng.sample(range(3), 2) if several else [self.partition()]
        parts = [
            {
                "partition": each, "current_leader_epoch": self.leader_epoch(topic, each),
                "fetch_offset": self.offset(topic, each), "last_fetched_epoch": -1, "log_start_offset": -1,
                "partition_max_bytes": rng.choice((1 << 20, 1 << 20, 1, 0, 100, 300)),
            }
            for each in partitions
        ]  # fmt: skip
        fields = {
            "replica_id": -1, "max_wait_ms": rng.choice((0, 0, 0, 20)), "min_bytes": rng.choice((0, 1, 1, 500)),
            "max_bytes": rng.choice((1 << 20, 1 << 20, 1, 0, 150, 400)), "isolation_level": rng.randrange(2),
            "session_id": 0, "session_epoch": -1,
            "topics": [{**self.named(topic, "topic"), "partitions": parts}],
            "forgotten_topics_data": [], "rack_id": "",
        }  # fmt: skip
        return [Ask(1, self.version(1), self.leader(topic, partitions[0]), fields)]

    def offset(self, topic: int, partition: int) -> Any:
        if self.chance(0.5):
            return self.rng.choice((0, 0, 0, 1, 2, 3, 5, 8, 13))
        return Symbol("end", topic, (partition, self.rng.choice((0, 0, -1, -2, -3, -5, 1, 100))))

    def leader_epoch(self, topic: int, partition: int) -> Any:
        if self.chance(0.75):
            return -1
        return Symbol("leader epoch", topic, (partition, self.rng.choice((0, 0, 0, -1, 1))))

    def list_offsets(self) -> list[Step]:
        rng = self.rng
        topic = self.topic()
        partitions = [self.partition() for _ in range(rng.choice((1, 1, 1, 2)) if self.brokers == 1 else 1)]
        parts = [
            {
                "partition_index": each, "current_leader_epoch": self.leader_epoch(topic, each),
                "timestamp": rng.choice(
                    (-1, -1, -2, -3, -4, -5, -6, 0, *(Symbol("time", when) for when in (
                        59_000, 60_000, 60_000, 61_000, 59_983, 86_400_000 * 3, 86_400_000 * 4, 5_000, -7_200_000, -1,
                    )))
                ),
            }
            for each in partitions
        ]  # fmt: skip
        fields = {
            "replica_id": -1, "isolation_level": rng.randrange(2), "timeout_ms": 1000,
            "topics": [{**self.named(topic), "partitions": parts}],
        }  # fmt: skip
        return [Ask(2, self.version(2), self.leader(topic, partitions[0]), fields)]

    def end_of_epoch(self) -> list[Step]:
        topic, partition = self.topic(), self.partition()
        wanted = self.rng.choice((0, 0, -1, 1, 5, Symbol("leader epoch", topic, (partition, 0))))
        part = {
            "partition": partition, "current_leader_epoch": self.leader_epoch(topic, partition), "leader_epoch": wanted,
        }  # fmt: skip
        fields = {"replica_id": -1, "topics": [{"topic": Symbol("topic", topic), "partitions": [part]}]}
        return [Ask(23, self.version(23), self.leader(topic, partition), fields)]

    def delete_records(self) -> list[Step]:
        topic, partition = self.topic(), self.partition()
        wanted = self.rng.choice((-1, -2, 0, 1, 2, 3, Symbol("end", topic, (partition, self.rng.choice((0, -1, 1))))))
        parts = [{"partition_index": partition, "offset": wanted}]
        fields = {"topics": [{"name": Symbol("topic", topic), "partitions": parts}], "timeout_ms": 5000}
        return [Ask(21, self.version(21), self.leader(topic, partition), fields)]

    def producers(self) -> list[Step]:
        topic, partition = self.topic(), self.partition()
        fields = {"topics": [{"name": Symbol("topic", topic), "partition_indexes": [partition]}]}
        return [Ask(61, 0, ("leader", topic, partition), fields)]

    # Topics ----------------------------------------------------------------------------------------------------------

    def placed(self, count: int) -> list[dict[str, Any]]:
        """Where partitions are: with one broker Kafka may choose."""
        if self.brokers == 1:
            return []
        return [{"partition_index": index, "broker_ids": self.replicas()} for index in range(count)]

    def replicas(self) -> list[int]:
        return self.rng.sample(range(1, self.brokers + 1), self.rng.choice((1, 2, 3, 3)))

    def create_topics(self, number: int | None = None) -> list[Step]:
        rng = self.rng
        topic = self.topic() if number is None else number
        count = rng.choice((1, 2, 2))
        name = Symbol("topic", topic)
        if number is None and self.chance(0.1):
            name = Symbol("illegal topic", rng.randrange(3))
        configs = [{"name": each, "value": rng.choice(values)} for each, values in rng.sample(_CONFIGS, 2)]
        if number is not None:
            configs = rng.choice(([], [{"name": "cleanup.policy", "value": "compact"}],
                                  [{"name": "message.timestamp.type", "value": "LogAppendTime"}], []))  # fmt: skip
        one = self.brokers == 1
        wanted = {
            "name": name, "num_partitions": count if one else -1, "replication_factor": rng.choice((1, -1)) if one else
            -1, "assignments": self.placed(count), "configs": configs if number is not None or self.chance(0.4) else [],
        }  # fmt: skip
        if number is None and one and self.chance(0.15):
            wanted |= rng.choice(({"num_partitions": 0}, {"replication_factor": 2}, {"replication_factor": 0},
                                  {"num_partitions": -2}, {"num_partitions": -1}))  # fmt: skip
        if len({len(each["broker_ids"]) for each in wanted["assignments"]}) > 1 and number is not None:
            for each in wanted["assignments"]:
                each["broker_ids"] = wanted["assignments"][0]["broker_ids"]
        fields = {"topics": [wanted], "timeout_ms": 20_000, "validate_only": number is None and self.chance(0.15)}
        return [Ask(19, self.version(19), ("any",), fields)]

    def delete_topics(self) -> list[Step]:
        topic = self.topic()
        by_id = self.chance(0.5)
        named = {
            "name": None if by_id else Symbol("topic", topic),
            "topic_id": Symbol("topic id", topic) if by_id else bytes(16),
        }
        fields = {"topics": [named], "topic_names": [Symbol("topic", topic)], "timeout_ms": 20_000}
        steps: list[Step] = [Ask(20, self.version(20), ("any",), fields)]
        return steps + (self.create_topics(topic) if self.chance(0.7) else [])

    def create_partitions(self) -> list[Step]:
        count = self.rng.choice((1, 2, 3, 0))
        wanted = {"name": Symbol("topic", self.topic()), "count": count, "assignments": None}
        if self.brokers > 1:
            wanted["assignments"] = [{"broker_ids": self.replicas()} for _ in range(self.rng.choice((1, 1, 2)))]
        fields = {"topics": [wanted], "timeout_ms": 20_000, "validate_only": self.chance(0.1)}
        return [Ask(37, self.version(37), ("any",), fields)]

    def alter_configs(self) -> list[Step]:
        rng = self.rng
        changes = [
            {"name": name, "config_operation": rng.choices((0, 1, 2, 3, 7), (8, 3, 1, 1, 0.2))[0],
             "value": rng.choice((*values, values[0]))}
            for name, values in rng.choices(_CONFIGS, k=rng.choice((1, 1, 2)))
        ]  # fmt: skip
        resource = {"resource_type": 2, "resource_name": Symbol("topic", self.topic()), "configs": changes}
        fields = {"resources": [resource], "validate_only": self.chance(0.1)}
        return [Ask(44, self.version(44), ("any",), fields)]

    def describe_configs(self) -> list[Step]:
        keys = self.rng.sample(_KEYS, 3)
        resource = {"resource_type": 2, "resource_name": Symbol("topic", self.topic()), "configuration_keys": keys}
        fields = {"resources": [resource], "include_synonyms": False, "include_documentation": False}
        return [Ask(32, self.version(32), ("any",), fields)]

    def metadata(self) -> list[Step]:
        version = self.version(3)
        by_id = version >= 12 and self.chance(0.4)
        topic = self.topic()
        named: Any = Symbol("topic", topic) if not self.chance(0.05) else Symbol("illegal topic", 0)
        wanted = {"topic_id": Symbol("topic id", topic) if by_id else bytes(16), "name": None if by_id else named}
        make = self.brokers == 1 and self.chance(0.1)
        if version < 4:
            wanted["name"] = Symbol("topic", self.rng.randrange(2))
        topics = None if version and self.chance(0.1) else [wanted]
        fields = {"topics": topics, "allow_auto_topic_creation": make}
        if version < 4 and self.brokers > 1:
            return []
        return [Ask(3, version, ("any",), fields)]

    def describe_partitions(self) -> list[Step]:
        fields = {
            "topics": [{"name": Symbol("topic", each)} for each in range(self.rng.choice((1, 2, 3)))],
            "response_partition_limit": self.rng.choice((2000, 1, 2, 3)), "cursor": None,
        }  # fmt: skip
        return [Ask(75, 0, ("any",), fields)]

    # Producers and transactions --------------------------------------------------------------------------------------

    def init(self, number: int | None = None) -> list[Step]:
        rng = self.rng
        producer = self.producer() if number is None else number
        name = Symbol("transactional id", producer) if producer in _TRANSACTIONAL else None
        at = ("transaction", producer) if name is not None else ("any",)
        version = self.version(22)
        fields: dict[str, Any] = {
            "number": producer, "transactional_id": name, "transaction_timeout_ms": 900_000, "producer_id": -1,
            "producer_epoch": -1,
        }  # fmt: skip
        if number is None and version >= 3 and self.chance(0.4):
            fields |= {
                "producer_id": Symbol("producer", self.producer() if self.chance(0.1) else producer),
                "producer_epoch": Symbol("epoch", producer, (rng.choice((0, 0, 0, -1, 1)),)),
            }
        if number is None and self.chance(0.05):
            fields["transaction_timeout_ms"] = rng.choice((0, -1, 900_001, 1_000_000))
        return [Ask(22, version, at, fields)]

    def stamp(self, producer: int) -> dict[str, Any]:
        epoch = self.rng.choices((0, -1, 1), (20, 1, 1))[0]
        other = self.producer() if self.chance(0.03) else producer
        return {
            "number": producer, "transactional_id": Symbol("transactional id", producer),
            "producer_id": Symbol("producer", other), "producer_epoch": Symbol("epoch", producer, (epoch,)),
        }  # fmt: skip

    def add_partitions(self) -> list[Step]:
        producer = self.rng.choice(_TRANSACTIONAL)
        places = self.rng.choice(((0,), (0,), (1,), (0, 1), (0, 7)))
        fields = self.stamp(producer) | {
            "topics": [{"name": Symbol("topic", self.topic()), "partitions": list(places)}]
        }
        return [Ask(24, self.version(24), ("transaction", producer), fields)]

    def add_offsets(self) -> list[Step]:
        producer = self.rng.choice(_TRANSACTIONAL)
        group = self.rng.randrange(_GROUPS)
        fields = self.stamp(producer) | {"group_id": Symbol("group", group)}
        steps: list[Step] = [Ask(25, self.version(25), ("transaction", producer), fields)]
        return steps + (self.txn_offset_commit(producer, group) if self.chance(0.7) else [])

    def txn_offset_commit(self, producer: int | None = None, group: int | None = None) -> list[Step]:
        producer = self.rng.choice(_TRANSACTIONAL) if producer is None else producer
        group = self.rng.randrange(_GROUPS) if group is None else group
        topics = [{**self.named(self.topic()), "partitions": [self.committed(group)]}]
        fields = self.stamp(producer) | self.membership(group) | {"group_id": Symbol("group", group), "topics": topics}
        return [Ask(28, self.version(28), ("group", group), fields)]

    def end(self) -> list[Step]:
        producer = self.rng.choice(_TRANSACTIONAL)
        fields = self.stamp(producer) | {"committed": self.chance(0.5)}
        return [Ask(26, self.version(26), ("transaction", producer), fields)]

    def transaction(self) -> list[Step]:
        """One that is right."""
        producer, topic = self.rng.choice(_TRANSACTIONAL), self.rng.randrange(2)
        stamp = {
            "number": producer, "transactional_id": Symbol("transactional id", producer),
            "producer_id": Symbol("producer", producer), "producer_epoch": Symbol("epoch", producer, (0,)),
        }  # fmt: skip
        named = [{"name": Symbol("topic", topic), "partitions": [0]}]
        steps: list[Step] = [Ask(24, self.version(24), ("transaction", producer), stamp | {"topics": named})]
        for _ in range(self.rng.choice((0, 1, 1, 2))):
            records = Records(topic, 0, self.times(self.rng.choice((1, 2))), producer, transactional=True, key=0)
            fields = {
                "transactional_id": Symbol("transactional id", producer), "acks": -1, "timeout_ms": 5000,
                "topic_data": [{**self.named(topic), "partition_data": [{"index": 0, "records": records}]}],
            }  # fmt: skip
            steps.append(Ask(0, min(self.version(0), 11), ("leader", topic, 0), fields))
        if self.chance(0.7):
            ending = stamp | {"committed": self.chance(0.5)}
            steps.append(Ask(26, self.version(26), ("transaction", producer), ending))
        return steps

    def markers(self) -> list[Step]:
        topic, partition = self.rng.randrange(2), self.rng.choice((0, 0, 0, 1))
        producer = self.producer()
        marker = {
            "producer_id": Symbol("producer", producer),
            "producer_epoch": Symbol("epoch", producer, (self.rng.choice((0, 0, 1, -1)),)),
            "transaction_result": self.chance(0.5),
            "topics": [{"name": Symbol("topic", topic), "partition_indexes": [partition]}],
            "coordinator_epoch": self.rng.choice((0, 0, 0, -1)),
        }
        if self.brokers > 1:
            marker["coordinator_epoch"] = -1  # each cluster has had elections of its own: no other epoch is alike
        return [Ask(27, self.version(27), ("leader", topic, partition), {"markers": [marker]})]

    def describe_transactions(self) -> list[Step]:
        producer = self.rng.choice(_TRANSACTIONAL)
        names: list[Any] = [Symbol("transactional id", producer)]
        if self.brokers == 1:
            names += self.rng.choice(([], [Symbol("transactional id", 9)], [""]))
        return [Ask(65, 0, ("transaction", producer), {"transactional_ids": names})]

    def list_transactions(self) -> list[Step]:
        if self.brokers > 1:
            return []
        fields = {
            "state_filters": self.rng.choice(([], self.rng.sample(_STATES, 2))),
            "producer_id_filters": self.rng.choice(([], [Symbol("producer", self.producer())])),
            "duration_filter": -1, "transactional_id_pattern": None,
        }  # fmt: skip
        return [Ask(66, self.version(66), ("any",), fields)]

    # Groups ----------------------------------------------------------------------------------------------------------

    def committed(self, group: int) -> dict[str, Any]:
        """What is too large only for a group that is stored: another one that it makes is seen with the next write."""
        too_large = ["m" * 4097] if self.joined[group] else []
        return {
            "partition_index": self.partition(), "committed_offset": self.rng.choice((0, 1, 5, 9)),
            "committed_leader_epoch": self.rng.choice((-1, 0, 3)),
            "committed_metadata": self.rng.choice(["", "", "note", None, *too_large]),
        }  # fmt: skip

    def membership(self, group: int) -> dict[str, Any]:
        """Of nobody, or of a member, right or wrong."""
        if self.chance(0.6) or not self.joined[group]:
            return {"generation_id": -1, "generation_id_or_member_epoch": -1, "member_id": ""}
        slot = self.rng.choice((*self.joined[group], 1))
        generation = Symbol("generation", group, (self.rng.choice((0, 0, 0, -1, 1)),))
        return {
            "generation_id": generation, "generation_id_or_member_epoch": generation,
            "member_id": Symbol("member", group, (slot,)),
        }  # fmt: skip

    def offset_commit(self) -> list[Step]:
        group = self.rng.randrange(_GROUPS)
        fields = self.membership(group) | {
            "group_id": Symbol("group", group), "group_instance_id": None, "retention_time_ms": -1,
            "topics": [{**self.named(self.topic()), "partitions": [self.committed(group)]}],
        }  # fmt: skip
        return [Ask(8, self.version(8), ("group", group), fields)]

    def offset_fetch(self) -> list[Step]:
        group, topic = self.rng.randrange(_GROUPS), self.topic()
        version = self.version(9)
        topics: Any = [{**self.named(topic), "partition_indexes": [0, self.partition()]}]
        topics = None if version >= 2 and self.chance(0.3) else topics
        stable = self.chance(0.4)
        one = {"group_id": Symbol("group", group), "topics": topics, "member_id": None, "member_epoch": -1}
        fields = {"groups": [one], **one, "require_stable": stable}
        return [Ask(9, version, ("group", group), fields)]

    def joining(self, group: int, slot: int, version: int) -> Ask:
        protocols = [{"name": "range", "metadata": bytes(6) + b"\0\0\0\1%d" % slot}]
        fields = {
            "number": group, "slot": slot, "group_id": Symbol("group", group), "session_timeout_ms": 600_000,
            "rebalance_timeout_ms": 600_000, "member_id": Symbol("member", group, (slot,)), "group_instance_id": None,
            "protocol_type": "consumer", "protocols": protocols, "reason": None,
        }  # fmt: skip
        return Ask(11, version, ("group", group), fields)

    def join(self) -> list[Step]:
        """Members come one by one, and all present ones join again; then the assignments."""
        group, rng = self.rng.randrange(_GROUPS), self.rng
        version = self.version(11)
        slot = rng.randrange(2)
        steps: list[Step] = []
        if slot not in self.joined[group] and version >= 4:
            steps.append(self.joining(group, slot, version))
        others = self.joined[group] - {slot}
        if self.chance(0.05):
            steps.append(self.joining(group, slot, version))
        steps.append(
            Together(
                group, (self.joining(group, slot, version), *(self.joining(group, each, version) for each in others))
            )
        )
        self.joined[group].add(slot)
        return steps + (self.sync(group) if self.chance(0.85) else [])

    def sync(self, group: int | None = None) -> list[Step]:
        group = self.rng.randrange(_GROUPS) if group is None else group
        version = self.version(14)
        slots = sorted(self.joined[group]) or [0]
        self.rng.shuffle(slots)
        asks = []
        for slot in slots:
            fields = {
                "group_id": Symbol("group", group), "generation_id": Symbol("generation", group, (0,)),
                "member_id": Symbol("member", group, (slot,)), "group_instance_id": None,
                "protocol_type": "consumer", "protocol_name": "range",
                "assignments": [
                    {"member_id": Symbol("member", group, (each,)), "assignment": b"all of %d" % each}
                    for each in slots
                ],
            }  # fmt: skip
            if self.chance(0.03):
                fields["generation_id"] = Symbol("generation", group, (1,))
            asks.append(Ask(14, version, ("group", group), fields))
        return [Together(group, tuple(asks))]

    def heartbeat(self) -> list[Step]:
        group = self.rng.randrange(_GROUPS)
        fields = {
            "group_id": Symbol("group", group), "member_id": Symbol("member", group, (self.rng.randrange(2),)),
            "generation_id": Symbol("generation", group, (self.rng.choice((0, 0, 0, -1, 1)),)),
            "group_instance_id": None,
        }  # fmt: skip
        return [Ask(12, self.version(12), ("group", group), fields)]

    def leave(self) -> list[Step]:
        group, slot = self.rng.randrange(_GROUPS), self.rng.randrange(2)
        self.joined[group].discard(slot)
        one = {"member_id": Symbol("member", group, (slot,)), "group_instance_id": None, "reason": None}
        fields = {"group_id": Symbol("group", group), "members": [one], **one}
        return [Ask(13, self.version(13), ("group", group), fields)]

    def describe_groups(self) -> list[Step]:
        group = self.rng.randrange(_GROUPS + 1)
        fields = {"groups": [Symbol("group", group)], "include_authorized_operations": False}
        return [Ask(15, self.version(15), ("group", group), fields)]

    def list_groups(self) -> list[Step]:
        if self.brokers > 1:
            return []
        fields = {"states_filter": self.rng.choice(([], [], ["Stable"], ["empty", "Weird"])), "types_filter": []}
        return [Ask(16, self.version(16), ("any",), fields)]

    # Others ----------------------------------------------------------------------------------------------------------

    def outside(self) -> list[Step]:
        key = self.rng.choice([each for each in self.spans if each != 18])
        return [Outside(key, self.spans[key][1] + self.rng.choice((7, 90)))]

    def fault(self) -> list[Step]:
        """A broker goes, some steps follow, and it comes back; or a leader moves."""
        rng = self.rng
        if self.brokers == 1:
            return []
        topic, partition = rng.randrange(2), rng.randrange(2)
        kind = rng.choices(("elect", "reassign", "stop", "kill", "freeze"), (4, 3, 2, 2, 1))[0]
        if kind in ("elect", "reassign"):
            replicas = tuple(rng.sample((1, 2, 3), rng.choice((1, 2, 3, 3))))
            return [Fault(kind, 0, topic, partition, replicas)]
        broker = rng.randint(1, 3)
        between: list[Step] = []
        for _ in range(rng.choice((4, 8, 12))):
            between += self.step(_WHILE_DOWN)
        return [Fault(kind, broker), *between, Fault("start", broker)]

    def step(self, kinds: dict[Callable[[Generator], list[Step]], float]) -> list[Step]:
        kind = self.rng.choices(list(kinds), list(kinds.values()))[0]
        return kind(self)


_KINDS: Final[dict[Callable[[Generator], list[Step]], float]] = {
    Generator.produce: 22, Generator.fetch: 10, Generator.list_offsets: 8, Generator.end_of_epoch: 2,
    Generator.delete_records: 2, Generator.producers: 5, Generator.create_topics: 2, Generator.delete_topics: 1.5,
    Generator.create_partitions: 1, Generator.alter_configs: 3, Generator.describe_configs: 2, Generator.metadata: 4,
    Generator.describe_partitions: 1, Generator.init: 5, Generator.add_partitions: 4, Generator.add_offsets: 2,
    Generator.txn_offset_commit: 1, Generator.end: 4, Generator.transaction: 4, Generator.markers: 0.7,
    Generator.describe_transactions: 2, Generator.list_transactions: 1, Generator.offset_commit: 3,
    Generator.offset_fetch: 3, Generator.join: 2, Generator.sync: 0.5, Generator.heartbeat: 1.5, Generator.leave: 0.7,
    Generator.describe_groups: 1.5, Generator.list_groups: 0.5, Generator.outside: 0.3, Generator.fault: 2,
}  # fmt: skip
_WITH_FAULTS: Final = {
    kind: weight
    for kind, weight in (_KINDS | {Generator.fault: 6}).items()
    if kind not in (Generator.join, Generator.sync)
}
"""Simulated members do not outlive their coordinator."""
_WHILE_DOWN: Final = {
    kind: weight
    for kind, weight in _WITH_FAULTS.items()
    if kind
    not in (
        Generator.fault, Generator.create_topics, Generator.delete_topics, Generator.create_partitions,
        Generator.alter_configs, Generator.leave,
    )
}  # fmt: skip


def program(seed: int, release: tuple[int, int], brokers: int, length: int) -> Program:
    """About so many steps."""
    generator = Generator(seed, release, brokers)
    steps: list[Step] = []
    for topic in range(2):
        steps += generator.create_topics(topic)
    for producer in (*_IDEMPOTENT, *_TRANSACTIONAL):
        steps += generator.init(producer)
    while len(steps) < length:
        steps += generator.step(_KINDS if brokers == 1 else _WITH_FAULTS)
    return Program(seed, brokers, tuple(steps))
