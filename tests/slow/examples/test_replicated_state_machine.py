"""`examples/replicated_state_machine.py`: each leader goes on from exactly the state that is in the log."""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import ast
import re
from contextlib import closing

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.conftest import OwnKafka, StartNode, Unique
from tests.nodes import NodeProcess
from tests.rest import Rest
from tests.services import Services
from tests.slow.examples.conftest import Start, Topic
from tests.slow.examples.programs import PATIENCE, Entry, Logs, Program, check_history
from tests.wait import wait_for

EXAMPLE = "replicated_state_machine"
WRITTEN = r"(?m)^\d+ /"


class Cluster:
    """Instances of the program on one topic."""

    def __init__(self, logs: Logs, bootstrap: str, rest: Rest, topic: str, start: Start) -> None:
        self.topic = topic
        self.rest = rest
        self._logs, self._bootstrap, self._start = logs, bootstrap, start

    def instance(self, name: str, *options: str) -> Program:
        arguments = ("--bootstrap", self._bootstrap, "--topic", self.topic, "--name", name, "--pause", "0.001")
        return self._start(EXAMPLE, *arguments, *options)

    def wait_for_waiting(self, *names: str) -> None:
        """Until these wait for the topic, in any order."""

        def waiting() -> bool:
            return sorted(each["name"] for each in self.rest.topic(self.topic)["waiting"]) == sorted(names)

        wait_for(waiting, f"{names} to wait", PATIENCE)

    def log(self) -> list[Entry]:
        return self._logs(self.topic)

    def check(self) -> list[str]:
        """Who led, in turn. Each record follows from the state that all records before it make: a leader that missed
        one, or had one that is not there, would have written another number.
        """
        log = self.log()
        visits: dict[str, int] = {}
        for entry in log:
            assert entry.key is not None
            if entry.value is None:
                assert visits.pop(entry.key) >= 10
            else:
                visits[entry.key] = visits.get(entry.key, 0) + 1
                assert entry.value == visits[entry.key], entry
        return check_history(log)


@pytest.fixture
def cluster(logs: Logs, node: NodeProcess, rest: Rest, topic: Topic, start: Start) -> Cluster:
    return Cluster(logs, node.bootstrap, rest, topic("visits"), start)


@pytest.mark.smoke
def test_each_leader_has_exactly_the_state_of_the_log_when_the_one_before_it_is_killed_at_work(
    cluster: Cluster,
) -> None:
    names = ["a", "b", "c"]
    instances = [cluster.instance("a")]
    instances[0].wait_for("a leads")
    for name in names[1:]:
        instances.append(cluster.instance(name))
        cluster.wait_for_waiting(*names[1 : len(instances)])
    for name, instance in zip(names, instances, strict=True):
        instance.wait_for(f"{name} leads")
        instance.wait_for(WRITTEN, 40)
        instance.kill()
    last = cluster.instance("last", "--writes", "20")
    assert last.end() == 0, last.output
    assert cluster.check() == [*names, "last"]
    log = cluster.log()
    assert any(entry.value is None for entry in log), "keys are taken away, too"
    assert f"{len(log) - 20} records replayed" in last.output


@pytest.mark.parametrize("by", ["an administrator", "a rival"])
def test_a_stalled_leader_never_writes_again_and_says_that_it_lost_the_topic(cluster: Cluster, by: str) -> None:
    stalled = cluster.instance("stalled")
    stalled.wait_for(WRITTEN, 10)
    if by == "an administrator":
        following = cluster.instance("next")
        cluster.wait_for_waiting("next")
        stalled.child.pause()
        assert cluster.rest.call("POST", f"/v1/topics/{cluster.topic}/fence")[0] == 200
    else:
        stalled.child.pause()
        following = cluster.instance("next", "--mode", "exclusive_with_fencing")
    following.wait_for("next leads")
    following.wait_for(WRITTEN, 10)
    stalled.child.resume()
    assert stalled.end() == 4
    assert "Error: lost the topic, nothing more was written: PRODUCER_FENCED (90)" in stalled.output
    following.stop()
    assert cluster.check() == ["stalled", "next"]


def test_a_leader_goes_on_when_the_node_is_killed_that_serves_its_topic(
    node_process: StartNode, unique: Unique, logs: Logs, start: Start
) -> None:
    name, topic = unique("c"), unique("example-visits")
    nodes = {number: node_process(node_id=number, cluster=name) for number in (1, 2)}
    rests = {number: Rest(node.admin_url) for number, node in nodes.items()}
    assert rests[1].call("PUT", f"/v1/topics/{topic}/policy", {"access_mode": "exclusive"})[0] == 200
    bootstrap = ",".join(node.bootstrap for node in nodes.values())
    cluster = Cluster(logs, bootstrap, rests[1], topic, start)
    leader = cluster.instance("a")
    leader.wait_for(WRITTEN, 20)
    serving = wait_for(lambda: rests[1].topic(topic)["serving_node"], "the node to know who serves the topic")
    nodes[serving].kill()
    leader.wait_for(WRITTEN, len(cluster.log()) + 20)
    assert rests[3 - serving].topic(topic)["serving_node"] == 3 - serving
    leader.stop()
    assert cluster.check() == ["a"]


def test_where_somebody_leads_an_instance_may_end_instead_of_waiting(cluster: Cluster) -> None:
    leader = cluster.instance("a")
    leader.wait_for("a leads")
    rival = cluster.instance("b", "--mode", "exclusive")
    assert rival.end() == 4
    assert "existing exclusive producer: a (generation 1)" in rival.output
    leader.stop()
    assert cluster.check() == ["a"]


def test_its_topic_is_compacted(services: Services, cluster: Cluster) -> None:
    program = cluster.instance("a", "--writes", "1")
    assert program.end() == 0, program.output
    resource = ConfigResource(ResourceType.TOPIC, cluster.topic)
    admin = AdminClient({"bootstrap.servers": services.kafka_bootstrap})
    found = admin.describe_configs([resource])[resource].result(PATIENCE)
    assert (found["cleanup.policy"].value, found["delete.retention.ms"].value) == ("compact", "86400000")


def state_of(log: list[Entry]) -> dict[str, int]:
    """What a replay makes of a log."""
    state: dict[str, int] = {}
    for entry in log:
        assert entry.key is not None
        if entry.value is None:
            state.pop(entry.key, None)
        else:
            state[entry.key] = entry.value
    return state


def test_a_log_that_kafka_has_compacted_is_replayed_to_the_same_state(
    own_kafka: OwnKafka, services: Services, node_process: StartNode, unique: Unique, start: Start
) -> None:
    kafka = own_kafka(overrides={"log.cleaner.backoff.ms": "200"}).bootstrap
    node = node_process(kafka=kafka, redis=services.redis_url)
    topic = unique("example-visits")

    def log() -> list[Entry]:
        """As it is now: what was read before may be gone."""
        with closing(Logs(kafka)) as logs:
            return logs(topic)

    with closing(Logs(kafka)) as logs:
        cluster = Cluster(logs, node.bootstrap, Rest(node.admin_url), topic, start)
        first = cluster.instance("first", "--writes", "150")
        assert first.end() == 0, first.output
        whole = log()
        compact_soon(kafka, topic)
        rolls = cluster.instance("rolls", "--writes", "4", "--pause", "0.5")  # of these the first begins a new segment
        assert rolls.end() == 0, rolls.output
        wait_for(lambda: len(log()) < len(whole) // 2, "Kafka to compact the log", 60)
        compacted = log()
        newer = [entry for entry in compacted if entry.offset > whole[-1].offset]
        assert state_of(compacted) == state_of([*whole, *newer])
        last = cluster.instance("last", "--writes", "1")
        assert last.end() == 0, last.output
        replayed = re.search(r"(\d+) records replayed: (.*)", last.output)
        assert replayed, last.output
        assert int(replayed[1]) <= len(compacted)  # Kafka may have left out some more
        assert ast.literal_eval(replayed[2]) == state_of(compacted)


def compact_soon(kafka: str, topic: str) -> None:
    """A new segment each second, the old ones cleaned at once."""
    soon = {"segment.ms": "1000", "min.cleanable.dirty.ratio": "0.001"}
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in soon.items()]
    admin = AdminClient({"bootstrap.servers": kafka})
    changed = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    for done in admin.incremental_alter_configs([changed]).values():
        done.result(20)
