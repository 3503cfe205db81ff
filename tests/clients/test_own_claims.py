"""Leadership among processes that were written in two languages: `ownctl` in Go, and raw frames from here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from sidecar.v1 import control_pb2 as control
from tests.conftest import StartNode, Unique
from tests.kafka.dedup.ids import IdProducer
from tests.nodes import NodeProcess
from tests.own import EXCLUSIVE, FENCING, WAIT, OwnClient, new_token, string, topic
from tests.rest import Rest
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for

from .ownctl import OwnCtl, token_of

pytestmark = pytest.mark.slow

Start = Callable[..., OwnCtl]

PATIENT: dict[str, Any] = {"mode": WAIT, "wait_ms": 10_000}


def claim(*what: control.Resource, generation: int | None = None, **fields: Any) -> control.OwnRequest:
    """A request for all of these."""
    claims = [control.Claim(resource=each, generation=generation) for each in what]
    return control.OwnRequest(claims=claims, **fields)


@pytest.fixture
def start(ownctl: Path, node: NodeProcess) -> Iterator[Start]:
    """Starts `ownctl own REQUEST FLAGS…` on the node, or on the one that is named."""
    with ExitStack() as running:

        def run(request: control.OwnRequest, *flags: str, at: NodeProcess = node) -> OwnCtl:
            return running.enter_context(OwnCtl(ownctl, at.bootstrap, "own", request, *flags))

        yield run


@pytest.fixture
def raw(node: NodeProcess) -> Iterator[OwnClient]:
    with OwnClient(node.bootstrap) as client:
        yield client


def generation(line: dict[str, Any], number: int = 0) -> int:
    return int(line["answer"]["ownerships"][number]["generation"])


# Leadership -----------------------------------------------------------------------------------------------------------


def test_who_waits_hears_of_its_promotion_by_watch_when_the_owner_is_killed(
    start: Start, raw: OwnClient, unique: Unique
) -> None:
    leader = string(unique("leader"))
    first = start(claim(leader, producer_name="first", **PATIENT))
    granted = first.expect("granted")
    assert (generation(granted), granted["answer"]["ownerships"][0]["owner_name"]) == (1, "first")
    second = start(claim(leader, producer_name="second", **PATIENT), "-watch")
    assert second.expect("waiting")["answer"]["error"] == "TIMED_OUT"

    refused = raw.own(leader)
    assert (refused.error, refused.ownerships[0].owner_name) == (control.HELD, "first")
    assert [each.name for each in raw.owners(leader).waiting] == ["second"]

    first.kill()
    change = second.expect("changed")["answer"]
    assert (change["error"], change["resource"]["name"]) == ("NONE", leader.name)
    assert generation(second.expect("granted")) == 1  # it was free in between
    assert raw.owner(leader).owner_name == "second"
    assert second.finish() == 0
    assert raw.owner(leader).owner_session == ""


def test_clients_of_both_languages_stand_in_one_queue(start: Start, raw: OwnClient, unique: Unique) -> None:
    leader, token = string(unique("leader")), new_token()
    first = start(claim(leader, **PATIENT))
    first.expect("granted")
    second = start(claim(leader, producer_name="second", mode=WAIT, wait_ms=100))
    second.expect("waiting")
    assert raw.own(leader, mode=WAIT, token=token, name="third").error == control.TIMED_OUT
    assert [each.name for each in raw.owners(leader).waiting] == ["second", "third"]
    assert first.finish() == 0
    second.expect("granted")
    assert raw.own(leader, mode=WAIT, token=token, name="third").error == control.TIMED_OUT
    second.kill()
    assert raw.own(leader, mode=WAIT, token=token, name="third", wait_ms=20_000).error == control.NONE


def test_a_claim_is_released_by_its_token_over_any_connection(
    ownctl: Path, start: Start, node: NodeProcess, raw: OwnClient, unique: Unique
) -> None:
    leader = string(unique("leader"))
    token = token_of(start(claim(leader, **PATIENT)).expect("granted"))
    assert raw.own(leader).error == control.HELD
    with OwnCtl(ownctl, node.bootstrap, "release", control.ReleaseRequest(token=token)) as ctl:
        ctl.expect("released")
        assert ctl.ended() == 0
    assert raw.own(leader).error == control.NONE


# Losing ---------------------------------------------------------------------------------------------------------------


def test_a_severed_owner_sees_its_connection_closed(start: Start, raw: OwnClient, unique: Unique) -> None:
    leader = string(unique("leader"))
    owner = start(claim(leader))
    assert generation(owner.expect("granted")) == 1
    assert raw.own(leader, generation=1).ownerships[0].generation == 2  # equal to the owner's: the wiki's rule
    owner.expect("ended")
    assert owner.ended() == 4


def test_who_is_deposed_while_it_waits_is_told_so(start: Start, raw: OwnClient, unique: Unique) -> None:
    leader = string(unique("leader"))
    start(claim(leader)).expect("granted")
    waiting = start(claim(leader, **PATIENT), "-watch")
    waiting.expect("waiting")
    assert raw.own(leader, mode=FENCING).error == control.NONE
    assert waiting.expect("changed")["answer"]["error"] == "DEPOSED"
    assert waiting.expect("refused")["error"] == "DEPOSED"
    assert waiting.ended() == 4


def test_a_generation_below_the_owners_is_refused(start: Start, raw: OwnClient, unique: Unique) -> None:
    leader = string(unique("leader"))
    assert raw.own(leader).error == control.NONE
    assert raw.own(leader, generation=7).ownerships[0].generation == 7
    rival = start(claim(leader, generation=6))
    assert rival.expect("refused")["error"] == "LOWER_GENERATION"
    assert rival.ended() == 4


# Sets -----------------------------------------------------------------------------------------------------------------


def test_a_set_is_granted_as_a_whole_or_not_at_all(start: Start, raw: OwnClient, unique: Unique) -> None:
    left, right, token = string(unique("left")), string(unique("right")), new_token()
    assert raw.own(right, token=token).error == control.NONE
    refused = start(claim(left, right, mode=EXCLUSIVE))
    assert refused.expect("refused")["error"] == "HELD"
    assert raw.owner(left).owner_session == ""

    waiting = start(claim(left, right, **PATIENT), "-watch")
    waiting.expect("waiting")
    assert raw.owner(left).owner_session == ""
    assert raw.own(left).error == control.HELD  # somebody waits for it
    assert raw.release(token).error == control.NONE
    waiting.expect("changed")
    granted = waiting.expect("granted")
    assert [each["error"] for each in granted["answer"]["ownerships"]] == ["NONE", "NONE"]
    assert len({each.owner_session for each in raw.owners(left, right).ownerships} - {""}) == 1


# Topics ---------------------------------------------------------------------------------------------------------------


def test_a_topic_is_owned_for_a_producer_before_its_first_record(
    start: Start, services: Services, node: NodeProcess
) -> None:
    name = create_topic(services.kafka_bootstrap)
    with IdProducer(node.bootstrap, "billing") as billing, IdProducer(node.bootstrap, "rival") as rival:
        owner = start(claim(topic(name), mode=EXCLUSIVE), "-producer-id", str(billing.producer_id))
        granted = owner.expect("granted")
        assert granted["answer"]["ownerships"][0]["owner_session"] == f"pid:{billing.producer_id}"
        assert rival.write(name, 1).error == 44
        assert billing.write(name, 1).error == 0


# Readers --------------------------------------------------------------------------------------------------------------


def commit(node: NodeProcess, client_id: str, group: str, name: str) -> str:
    """What becomes of a commit of librdkafka's: "ok", or the name of the error."""
    consumer = Consumer(
        {"bootstrap.servers": node.bootstrap, "client.id": client_id, "group.id": group, "log_level": 0}
    )
    try:
        [found] = consumer.commit(offsets=[TopicPartition(name, 1, 5)], asynchronous=False) or []
    except KafkaException as error:
        return error.args[0].name()
    else:
        return "ok" if found.error is None else found.error.name()
    finally:
        consumer.close()


def test_an_unmodified_consumer_holds_a_claim_by_its_name(
    start: Start, services: Services, node: NodeProcess, unique: Unique
) -> None:
    name, group = create_topic(services.kafka_bootstrap), unique("billing")
    asked = claim(topic(name, 1), group=group, producer_name="billing-1", mode=EXCLUSIVE)
    owner = start(asked)
    owner.expect("granted")
    assert commit(node, "billing-2", group, name) == "ILLEGAL_GENERATION"
    assert commit(node, "billing-1", group, name) == "ok"
    assert commit(node, "billing-2", unique("other"), name) == "ok"
    assert owner.finish() == 0
    assert commit(node, "billing-2", group, name) == "ok"


# Mistakes -------------------------------------------------------------------------------------------------------------

LEADER = string("leader")
MISTAKES = {
    "no claims": (claim(), "1 to 1000 claims, not 0"),
    "nothing named": (claim(control.Resource()), "either a topic or a name"),
    "both named": (claim(control.Resource(topic="orders", name="leader")), "either a topic or a name"),
    "a partition of a string": (claim(control.Resource(name="leader", partition=0)), "partition is a number"),
    "shared": (claim(LEADER, mode=control.SHARED), "mode SHARED"),
    "a short token": (claim(LEADER, token=b"short"), "16 random bytes, not 5"),
    "a negative wait": (claim(LEADER, wait_ms=-1), "wait_ms is -1"),
    "a negative generation": (claim(LEADER, generation=-1), "generation -1"),
    "twice": (claim(LEADER, LEADER), "the string 'leader' is claimed twice"),
    "a long name of an owner": (claim(LEADER, producer_name="x" * 256), "255 bytes"),
    "a long name": (claim(string("x" * 1_025)), "1024 bytes"),
    "a long group": (claim(LEADER, group="x" * 1_025), "1024 bytes"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_bad_request_is_named(start: Start, mistake: str) -> None:
    request, told = MISTAKES[mistake]
    refused = start(request)
    line = refused.expect("refused")
    assert (line["error"], told in line["message"]) == ("INVALID_REQUEST", True), line
    assert refused.ended() == 4


# Two nodes ------------------------------------------------------------------------------------------------------------


def test_whichever_node_is_asked_first_the_one_that_serves_is_found(
    ownctl: Path, start: Start, node_process: StartNode, unique: Unique
) -> None:
    nodes, leader = two_nodes(node_process, unique("c")), string(unique("leader"))
    for node in nodes:
        owner = start(claim(leader, producer_name="owner", **PATIENT), at=node)
        granted = owner.expect("granted")
        assert generation(granted) == 1
        for other in nodes:
            rival = start(claim(leader, mode=EXCLUSIVE), at=other)
            refused = rival.expect("refused")
            assert (refused["error"], refused["message"]) == ("HELD", "owner owns it (generation 1)")
        release = control.ReleaseRequest(resources=[leader], token=token_of(granted))
        other = next(each for each in nodes if each.node_id != granted["answer"]["ownerships"][0]["serving_node"])
        with OwnClient(other.bootstrap) as client:
            wait_for(lambda: client.owner(leader).owner_session, "the other node to know the owner")
        with OwnCtl(ownctl, other.bootstrap, "release", release) as ctl:
            ctl.expect("released")
        with OwnClient(nodes[0].bootstrap) as client:
            wait_for(lambda: not client.owner(leader).owner_session, "the string to be free")


@pytest.mark.parametrize("flags", [(), ("-watch",)], ids=["by-own", "by-watch"])
def test_a_session_that_is_a_producer_goes_on_when_the_node_dies(
    start: Start, node_process: StartNode, unique: Unique, flags: tuple[str, ...]
) -> None:
    nodes, leader = two_nodes(node_process, unique("c"), RECONNECT_GRACE_MS="60000"), string(unique("leader"))
    with IdProducer(nodes[0].bootstrap, "first"), IdProducer(nodes[0].bootstrap, "billing") as billing:
        session = billing.producer_id  # not 0, which a node that did not give it cannot tell from none
    everywhere = ",".join(node.bootstrap for node in nodes)
    start(claim(leader), at=nodes[0]).expect("granted")
    owner = start(claim(leader, generation=7), "-producer-id", str(session), "-bootstrap", everywhere, *flags)
    granted = owner.expect("granted")["answer"]["ownerships"][0]
    assert granted["generation"] == "7"  # a claim of what is free would get 1
    serving, other = sorted(nodes, key=lambda node: node.node_id != granted["serving_node"])
    serving.kill()
    again = owner.until("granted")["answer"]["ownerships"][0]
    assert (again["owner_session"], again["generation"]) == (f"pid:{session}", granted["generation"])
    assert (granted["serving_node"], again["serving_node"]) == (serving.node_id, other.node_id)


def two_nodes(node_process: StartNode, cluster: str, **settings: str) -> list[NodeProcess]:
    nodes = [node_process(cluster=cluster, node_id=number, LEASE_MS="1000", **settings) for number in (1, 2)]
    rests = [Rest(node.admin_url) for node in nodes]
    wait_for(lambda: all(len(r.call("GET", "/v1/status")[1]["nodes"]) == 2 for r in rests), "both nodes")
    return nodes
