"""Plays the steps of a program on one side, and remembers what later steps need."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

from tests.sim.kafka.batches import TRANSACTIONAL
from tests.sim.kafka.differential.plain import NOBODYS_ID, Plain
from tests.sim.kafka.differential.steps import Ask, Fault, Outside, Records, Step, Symbol, Together
from tests.sim.kafka.scenarios.common import compressed, list_fields, patched, timed
from tests.sim.kafka.tables import MESSAGES
from tests.sim.kafka.talk import Talk
from tests.sim.kafka.topics import INTERNAL
from tests.sim.kafka.trouble import Trouble

NOBODYS_PRODUCER: Final = 9_000_000_000
_NOT_READY: Final = (14, 15, 16)
_FIRST_THAT_MAY_DECLINE: Final = 4
"""Of Metadata: before it, an unknown topic is always made."""
_ROUNDS: Final = 6000
"""How often a condition is looked at before a side counts as stuck: two minutes and more for real brokers, which start
slowly on a busy machine."""
_WAITS_S: Final = 0.5
"""A request without an answer for so long, in `Together`, waits for others."""


class StuckError(Exception):
    """A condition that a step leaves behind does not come about."""


class Player:
    """One side. `play` returns a comparable answer for each step."""

    def __init__(self, talk: Talk, prefix: str, brokers: int) -> None:
        self.talk = talk
        self.prefix = prefix
        self.alive = set(range(1, brokers + 1))
        self.all = frozenset(self.alive)
        self.frozen: set[int] = set()
        self.restarted: set[int] = set()
        self.transactional: set[str] = set()
        """Transactional ids that have a coordinator."""
        self.plain = Plain(prefix, talk.wall_ms())
        self.partitions: dict[str, int] = {}
        """Topics that exist, and how many partitions each has."""
        self.ids: dict[str, bytes] = {}
        self.producers: dict[int, tuple[int, int]] = {}
        self.sequences: dict[tuple[int, int, str, int], int] = defaultdict(int)
        self.written: dict[tuple[int, str, int], list[tuple[int, int]]] = defaultdict(list)
        self.ends: dict[tuple[str, int], int] = defaultdict(int)
        self.epochs: dict[tuple[str, int], int] = defaultdict(int)
        self.members: dict[tuple[int, int], str] = {}
        self.generations: dict[int, int] = {}
        self.leaders: dict[int, str] = {}

    # Symbols ---------------------------------------------------------------------------------------------------------

    def value(self, found: Any) -> Any:
        """A value of a request with everything put in."""
        if isinstance(found, dict):
            return {name: self.value(each) for name, each in found.items()}
        if isinstance(found, list):
            return [self.value(each) for each in found]
        if isinstance(found, Records):
            return self._records(found)
        return self._symbol(found) if isinstance(found, Symbol) else found

    def topic(self, number: int) -> str:
        return f"{self.prefix}t{number}"

    def _symbol(self, symbol: Symbol) -> Any:  # noqa: C901, PLR0912 - a case for each kind
        number, more = symbol.number, symbol.more
        match symbol.kind:
            case "topic":
                return self.topic(number)
            case "illegal topic":
                return self.prefix + ("t!", "t" * 250, "t/t")[number]
            case "topic id":
                return self.ids.get(self.topic(number), NOBODYS_ID)
            case "transactional id":
                return f"{self.prefix}x{number}"
            case "group":
                return f"{self.prefix}g{number}"
            case "producer":
                return self.producers.get(number, (NOBODYS_PRODUCER + number, 0))[0]
            case "epoch":
                return max(-1, self.producers.get(number, (0, 0))[1] + more[0])
            case "end":
                return max(0, self.ends[self.topic(number), more[0]] + more[1])
            case "leader epoch":
                return max(0, self.epochs[self.topic(number), more[0]] + more[1])
            case "time":
                return self.plain.began_ms - number
            case "member":
                return self.members.get((number, more[0]), "")
            case "generation":
                return self.generations.get(number, 0) + more[0]
            case _:
                raise AssertionError(symbol)

    def _records(self, records: Records) -> bytes:
        pid, epoch, sequence = -1, -1, -1
        count = len(records.times)
        topic = self.topic(records.topic)
        if records.producer is not None:
            pid, epoch = self._symbol(Symbol("producer", records.producer)), 0
            epoch = max(0, self.producers.get(records.producer, (0, 0))[1] + records.epoch)
            sequence = self.sequences[pid, epoch, topic, records.partition] + records.sequence
            earlier = self.written[pid, topic, records.partition]
            if records.again is not None and records.again < len(earlier):
                sequence, count = earlier[-1 - records.again]
            sequence = max(0, sequence)
        times = [self.plain.began_ms - each for each in (records.times * count)[:count]]
        batch = timed(times, pid, epoch, sequence, TRANSACTIONAL if records.transactional else 0)
        if records.codec:
            batch = compressed(batch, records.codec)
        match records.damage:
            case "crc":
                return batch[:-1] + bytes([batch[-1] ^ 1])
            case "magic":
                return batch[:16] + b"\1" + batch[17:]
            case "count":
                return patched(batch, 57, ">i", count + 1)
            case "control":
                return patched(batch, 21, ">h", int.from_bytes(batch[21:23], "big") | 0x20)
            case "base":
                return patched(batch, 0, ">q", 5)
            case "short":
                return batch[:-1]
            case "sequence":
                return patched(batch, 53, ">i", -1)
            case _:
                return batch

    # Steps -----------------------------------------------------------------------------------------------------------

    def play(self, step: Step) -> Any:
        """The comparable answers to one step, after what it changes is known everywhere."""
        if isinstance(step, Ask):
            return self._ask(step)
        if isinstance(step, Together):
            return self._together(step)
        if isinstance(step, Outside):
            return self._outside(step)
        self._fault(step)
        return None

    def _ask(self, ask: Ask) -> Any:
        fields = self.value(ask.fields)
        for _ in range(_ROUNDS):
            answer = self._exchange(ask, fields)
            asks_coordinator = ask.at[0] in ("transaction", "group") or ask.key == 22
            if not (asks_coordinator and _is_not_ready(answer)):
                break
            self.talk.pause(0.02)
        self._learn(ask, fields, answer)
        return self._told(answer)

    def _exchange(self, ask: Ask, fields: dict[str, Any]) -> Any:
        broker = self._broker(ask.at)
        if ask.key == 0 and fields["acks"] == 0:
            head = MESSAGES[0].encode_request(ask.version, 1, b"differential", fields)
            behind = MESSAGES[10].encode_request(1, 2, b"differential", {"key": "any", "key_type": 7})
            return "closed" if self.talk.exchange(broker, head + behind) is None else "silent"
        return self.talk.outcome(self.talk.begin(broker, ask.key, ask.version, fields), 20)

    def _told(self, answer: Any) -> Any:
        return self.plain.answer(answer) if isinstance(answer, dict) else answer

    def _broker(self, at: tuple[Any, ...]) -> int:
        if at[0] == "broker":
            return at[1] if at[1] in self.alive else min(self.alive)
        if at[0] in ("leader", "follower"):
            leader = self._leader(self.topic(at[1]), at[2])
            others = self.alive - {leader}
            return leader if at[0] == "leader" or not others else min(others)
        if at[0] in ("transaction", "group"):
            symbol = Symbol("transactional id" if at[0] == "transaction" else "group", at[1])
            kind = int(at[0] == "transaction")
            for _ in range(_ROUNDS):
                answer = self._call(min(self.alive), 10, 1, {"key": self._symbol(symbol), "key_type": kind})
                if not answer["error_code"]:
                    return answer["node_id"]
                self.talk.pause(0.02)
            raise StuckError(f"no coordinator of {symbol}")
        return min(self.alive)

    def _call(self, broker: int, key: int, version: int, fields: dict[str, Any]) -> dict[str, Any]:
        return self.talk.ask(broker, key, version, fields)

    def _leader(self, topic: str, partition: int) -> int:
        """Or any broker, where none leads."""
        leader = self._live_leader(topic, partition)
        return min(self.alive) if leader is None else leader

    def _live_leader(self, topic: str, partition: int) -> int | None:
        row = self._described(min(self.alive), topic)
        found = {each["partition_index"]: each["leader_id"] for each in row["partitions"]}
        leader = found.get(partition, -1)
        return leader if leader in self.alive else None

    def _described(self, broker: int, topic: str) -> dict[str, Any]:
        fields = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
        return self._call(broker, 3, 12, fields)["topics"][0]

    def _together(self, together: Together) -> Any:
        """A request waits for others while its group says so, or as long as nobody answers it."""
        begun: list[tuple[Ask, dict[str, Any], Any]] = []
        answers: dict[int, Any] = {}
        for number, ask in enumerate(together.asks):
            fields = self.value(ask.fields)
            begun.append((ask, fields, self.talk.begin(self._broker(ask.at), ask.key, ask.version, fields)))
            is_last = number == len(together.asks) - 1
            answer = self.talk.outcome(begun[-1][2], 10 if is_last and len(begun) > 1 else _WAITS_S)
            if answer is not None:
                answers[number] = answer
        for number, (_, _, pending) in enumerate(begun):
            if number not in answers:
                answers[number] = self.talk.outcome(pending, _WAITS_S)
        for number, (ask, fields, _) in enumerate(begun):
            if answers[number] is not None:
                self._learn(ask, fields, answers[number])
        return [self._told(answers[number]) for number in range(len(begun))]

    def _outside(self, step: Outside) -> Any:
        message = MESSAGES[step.key]
        frame = bytearray(message.encode_request(3, 1, b"differential", {}))
        frame[6:8] = step.version.to_bytes(2, "big", signed=True)
        return self.talk.exchange(min(self.alive), bytes(frame)) is None

    # What the answers say --------------------------------------------------------------------------------------------

    def _learn(self, ask: Ask, fields: dict[str, Any], answer: Any) -> None:
        if answer == "silent":
            self._settle_ends()
        if not isinstance(answer, dict):
            return
        learn = _LEARN.get(ask.key)
        if learn is not None:
            learn(self, ask, fields, answer)

    def _produced(self, ask: Ask, fields: dict[str, Any], answer: dict[str, Any]) -> None:
        specs = {
            (self._name(topic), part["index"]): part["records"]
            for topic in self._named(ask.fields["topic_data"])
            for part in topic["partition_data"]
        }
        for topic in answer["responses"]:
            for row in topic["partition_responses"]:
                place = self._name(topic), row["index"]
                records = specs.get(place)
                if row["error_code"] or not isinstance(records, Records):
                    continue
                count = len(records.times)
                if records.producer is not None:
                    pid, epoch = self.producers.get(records.producer, (NOBODYS_PRODUCER + records.producer, 0))
                    data = self._records(records)
                    sequence, count = int.from_bytes(data[53:57], "big"), int.from_bytes(data[57:61], "big")
                    epoch = max(0, epoch + records.epoch)
                    if row["base_offset"] >= self.ends[place]:
                        self.written[pid, *place].append((sequence, count))
                        self.sequences[pid, epoch, *place] = sequence + count
                self.ends[place] = max(self.ends[place], row["base_offset"] + count)
        if fields["acks"] == 1:
            self._settle_ends()

    def _name(self, topic: dict[str, Any]) -> str:
        if topic.get("name"):
            return topic["name"]
        return next((name for name, each in self.ids.items() if each == topic.get("topic_id")), "")

    def _named(self, topics: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The topics of a request with names and ids put in, and records left as they are described."""
        return [
            {name: each if isinstance(each, list) else self.value(each) for name, each in topic.items()}
            for topic in topics
        ]

    def _initialized(self, ask: Ask, fields: dict[str, Any], answer: dict[str, Any]) -> None:
        if not answer["error_code"]:
            number = ask.fields["number"]
            self.plain.name(answer["producer_id"], "producer")
            self.producers[number] = answer["producer_id"], answer["producer_epoch"]
        self._settle_transaction(fields["transactional_id"])

    def _ended(self, ask: Ask, fields: dict[str, Any], answer: dict[str, Any]) -> None:
        if answer.get("producer_id", -1) >= 0 and not answer["error_code"]:
            self.plain.name(answer["producer_id"], "producer")
            self.producers[ask.fields["number"]] = answer["producer_id"], answer["producer_epoch"]
        self._settle_transaction(fields["transactional_id"])
        self._settle_ends()

    def _joined(self, ask: Ask, fields: dict[str, Any], answer: dict[str, Any]) -> None:
        group, slot = ask.fields["number"], ask.fields["slot"]
        if answer["member_id"]:
            self.plain.names.setdefault(answer["member_id"], f"member {slot} of {group}")
            self.members[group, slot] = answer["member_id"]
        if not answer["error_code"]:
            self.generations[group] = answer["generation_id"]
            self.leaders[group] = answer["leader"]

    def _created(self, ask: Ask, fields: dict[str, Any], answer: dict[str, Any]) -> None:
        """Topics, or partitions, were made."""
        if fields["validate_only"]:
            return
        rows = answer.get("topics", answer.get("results"))
        counts = {each["name"]: each for each in fields["topics"]}
        for row in rows or ():
            if not row["error_code"]:
                wanted = counts[row["name"]]
                count = wanted["count"] if "count" in wanted else wanted["num_partitions"]
                count = len(wanted["assignments"] or ()) if count < 0 else count
                self.partitions[row["name"]] = max(1, count)
                self._settle_topic(row["name"])

    def _deleted(self, ask: Ask, fields: dict[str, Any], answer: dict[str, Any]) -> None:
        for row in answer["responses"]:
            name = self._name(row)
            if not row["error_code"] and self.partitions.pop(name, None):
                self._until(lambda name=name: self._is_gone(name), f"{name} is gone")
                for store in (self.ends, self.epochs):
                    for place in [each for each in store if each[0] == name]:
                        del store[place]

    def _altered(self, ask: Ask, fields: dict[str, Any], answer: dict[str, Any]) -> None:
        """Settings are visible on each broker, and its logs have been told a moment later by the same thread."""
        if fields["validate_only"]:
            return
        for resource, row in zip(fields["resources"], answer["responses"], strict=True):
            changes = {each["name"]: each for each in resource["configs"]}
            if not row["error_code"]:
                self._until(lambda: self._are_set(resource["resource_name"], changes), "settings")  # noqa: B023
        self.talk.pause(0.1)

    def _are_set(self, topic: str, changes: dict[str, dict[str, Any]]) -> bool:
        """Whether every broker has them. What was appended or taken out is looked at on one broker for all.
        A broker that was started again may have settings of a deleted topic of that name, which nobody can remove.
        """
        keeps = self.restarted if self._lives(topic) > 1 else set[int]()
        told = {broker: self._settings(broker, topic) for broker in sorted(self.alive)}
        for name, change in changes.items():
            for value, is_own in (each.get(name, ("", False)) for each in told.values()):
                if change["config_operation"] == 0 and (value, is_own) != (change["value"], True):
                    return False
            sure = [each.get(name, ("", False)) for broker, each in told.items() if broker not in keeps]
            if any(is_own for _, is_own in sure) and change["config_operation"] == 1:
                return False
            if any(each != sure[0] for each in sure):
                return False
        return True

    def _lives(self, topic: str) -> int:
        """How many topics with this name there were."""
        return sum(each.startswith(f"id of {topic} ") for each in self.plain.names.values())

    def _settings(self, broker: int, topic: str) -> dict[str, tuple[str, bool]]:
        """Values, and whether they are the topic's own."""
        resource = {"resource_type": 2, "resource_name": topic, "configuration_keys": None}
        rows = self._call(broker, 32, 4, {"resources": [resource]})["results"][0]["configs"]
        return {row["name"]: (row["value"], row["config_source"] == 1) for row in rows}

    def _described_topics(self, ask: Ask, fields: dict[str, Any], answer: dict[str, Any]) -> None:
        """Metadata may have made topics."""
        if ask.version < _FIRST_THAT_MAY_DECLINE or fields["allow_auto_topic_creation"]:
            for row in answer["topics"]:
                name = row["name"] or ""
                if row["error_code"] in (3, 5) and name.startswith(self.prefix):
                    self.partitions[name] = 1
                    self._settle_topic(name)

    # Conditions ------------------------------------------------------------------------------------------------------

    def _until(self, check: Callable[[], Any], what: str) -> None:
        for _ in range(_ROUNDS):
            try:
                if check():
                    return
            except OSError:
                pass
            self.talk.pause(0.02)
        raise StuckError(what)

    def _settle_topic(self, name: str) -> None:
        """Every broker names the same live leaders, the ISR is full, and the leaders serve."""
        self._until(lambda: self._is_known(name), f"{name} is known")
        row = self._described(min(self.alive), name)
        if row.get("topic_id"):
            self.ids[name] = row["topic_id"]
            self.plain.names.setdefault(row["topic_id"], f"id of {name} {self._lives(name)}")
        for part in row["partitions"]:
            self.epochs[name, part["partition_index"]] = part["leader_epoch"]

    def _is_known(self, name: str) -> bool:
        rows = [self._described(broker, name) for broker in sorted(self.alive)]
        places = [
            sorted(
                (part["partition_index"], part["leader_id"], part["leader_epoch"], *sorted(part["isr_nodes"]))
                for part in row["partitions"]
            )
            for row in rows
        ]
        count = self.partitions.get(name)
        if any(row["error_code"] for row in rows) or places.count(places[0]) < len(places):
            return False
        if count is not None and len(places[0]) != count:
            return False
        for part in rows[0]["partitions"]:
            if set(part["isr_nodes"]) != self.alive.intersection(part["replica_nodes"]) or part["error_code"]:
                if self.alive.intersection(part["replica_nodes"]):
                    return False
                continue
            if part["leader_id"] not in self.alive:
                return False
            asked = list_fields(name, -1, partition=part["partition_index"])
            listed = self._call(part["leader_id"], 2, 5, asked)["topics"][0]["partitions"][0]
            if listed["error_code"]:
                return False
        return True

    def _is_gone(self, name: str) -> bool:
        return all(self._described(broker, name)["error_code"] == 3 for broker in self.alive) and all(
            self._call(broker, 2, 5, list_fields(name, -1))["topics"][0]["partitions"][0]["error_code"] == 3
            for broker in self.alive
        )

    def _settle_transaction(self, name: str | None) -> None:
        """No marker is on its way, or none can arrive while a broker is away."""
        if not name:
            return
        self.transactional.add(name)

        def rests() -> bool:
            broker = self._call(min(self.alive), 10, 1, {"key": name, "key_type": 1})["node_id"]
            if broker not in self.alive:
                return False
            row = self._call(broker, 65, 0, {"transactional_ids": [name]})["transaction_states"][0]
            return row["error_code"] not in _NOT_READY and not row["transaction_state"].startswith("Prepare")

        if self.alive == self.all:
            self._until(rests, f"{name} rests")
        else:
            for _ in range(50):
                if rests():
                    break
                self.talk.pause(0.02)

    def _settle_ends(self) -> None:
        """Every log is replicated: what the leader appends now is committed, so all before it is. Remember the ends."""
        for name, count in self.partitions.items():
            for index in range(count):
                self.ends[name, index] = max(self.ends[name, index], self._high_watermark(name, index))

    def _high_watermark(self, name: str, index: int) -> int:
        """Once it has not moved for two looks; 0 where no replica is alive."""
        last = -2
        for _ in range(_ROUNDS):
            leader = self._live_leader(name, index)
            if leader is None:
                return 0
            row = self._call(leader, 2, 5, list_fields(name, -1, partition=index))["topics"][0]["partitions"][0]
            if row["error_code"] == 0 and row["offset"] == last:
                return last
            last = row["offset"] if row["error_code"] == 0 else -2
            if len(self.all) > 1:
                self.talk.pause(0.1)
            if row["error_code"] not in (0, 5, 6, 78):
                return 0
        raise StuckError(f"end of {name}-{index}")

    # Faults ----------------------------------------------------------------------------------------------------------

    def _fault(self, fault: Fault) -> None:
        """Only one broker is away at a time, and replicas move while none is."""
        talk, broker = self.talk, fault.broker
        assert isinstance(talk, Trouble), "only a cluster that can be broken"
        if fault.what == "start":
            if broker in self.frozen:
                talk.thaw(broker)
            elif broker not in self.alive:
                talk.start(broker)
                self.restarted.add(broker)
            self.frozen.discard(broker)
            self.alive.add(broker)
        elif self.alive < self.all:
            return
        elif fault.what in ("elect", "reassign"):
            self._move(talk, fault)
        else:
            self._until(self._are_replicated, "followers know the high watermarks")
            if fault.what == "freeze":
                self.frozen.add(broker)
            # a killed broker is no eligible leader any more (KIP-966): what it has alone would have none for good
            what = "stop" if fault.what == "kill" and self._has_alone(broker) else fault.what
            getattr(talk, what)(broker)
            self.alive.discard(broker)
        self.settle()

    def _has_alone(self, broker: int) -> bool:
        """Whether there is a partition whose only replica is there."""
        places = [(name, index) for name, count in self.partitions.items() for index in range(count)]
        return any(self._replicas(1, *place) == [broker] for place in places)

    def _are_replicated(self) -> bool:
        """Whether all replicas have the same high watermarks, as their answers to readers say (KIP-392)."""
        for name, count in self.partitions.items():
            for index in range(count):
                marks: set[int] = set()
                for broker in self._replicas(1, name, index):
                    row = self.talk.fetch(name, self.ends[name, index], broker=broker, partition=index)
                    marks.add(row["high_watermark"])
                if len(marks) > 1:
                    return False
        return True

    def _move(self, talk: Trouble, fault: Fault) -> None:
        """Other replicas, or the same ones in another order and the first one elected."""
        name = self.topic(fault.topic)
        if fault.partition >= self.partitions.get(name, 0):
            return
        wanted = list(fault.replicas)
        if fault.what == "elect":
            now = self._replicas(1, name, fault.partition)
            wanted = [each for each in wanted if each in now]
            wanted += [each for each in now if each not in wanted]
        talk.reassign(name, fault.partition, wanted)
        self._until(
            lambda: all(self._replicas(broker, name, fault.partition) == wanted for broker in self.all), "reassigned"
        )
        if fault.what == "elect":
            talk.elect(name, fault.partition)
            self._until(lambda: self._leader(name, fault.partition) == wanted[0], "elected")

    def _replicas(self, broker: int, topic: str, partition: int) -> list[int]:
        rows = self._described(broker, topic)["partitions"]
        return next(each["replica_nodes"] for each in rows if each["partition_index"] == partition)

    def settle(self) -> None:
        """All brokers that run know each other and the leaders of everything."""
        self._until(
            lambda: all(
                {each["node_id"] for each in self._call(broker, 3, 12, {"topics": []})["brokers"]} == self.alive
                for broker in sorted(self.alive)
            ),
            "the brokers know each other",
        )  # fmt: skip
        for name in (*INTERNAL, *self.partitions):
            self._settle_topic(name)
        for name in sorted(self.transactional):
            self._until(lambda name=name: self._is_coordinated(name, 1), f"a coordinator of {name}")
        for group in sorted({group for group, _ in self.members} | set(range(2))):
            name = self._symbol(Symbol("group", group))
            self._until(lambda name=name: self._is_coordinated(name, 0), f"a coordinator of {name}")
        if self.alive == self.all:
            for name in sorted(self.transactional):
                self._settle_transaction(name)
        self._settle_ends()

    def _is_coordinated(self, name: str, kind: int) -> bool:
        broker = self._call(min(self.alive), 10, 1, {"key": name, "key_type": kind})["node_id"]
        if broker not in self.alive:
            return False
        asked = {"transactional_ids": [name]} if kind else {"group_id": name, "topics": []}
        answer = self._call(broker, 65 if kind else 9, 0 if kind else 5, asked)
        row = answer["transaction_states"][0] if kind else answer
        return row["error_code"] not in _NOT_READY


def _is_not_ready(answer: Any) -> bool:
    """Whether a coordinator is loading, or has moved."""
    if isinstance(answer, dict):
        code = answer.get("error_code", answer.get("partition_error_code"))
        return code in _NOT_READY or any(_is_not_ready(each) for each in answer.values() if isinstance(each, list))
    return isinstance(answer, list) and any(_is_not_ready(each) for each in answer)


_LEARN: Final[dict[int, Callable[[Player, Ask, dict[str, Any], dict[str, Any]], None]]] = {
    0: Player._produced,
    3: Player._described_topics,
    11: Player._joined,
    19: Player._created,
    20: Player._deleted,
    22: Player._initialized,
    26: Player._ended,
    27: lambda player, *_: player._settle_ends(),
    37: Player._created,
    44: Player._altered,
}
