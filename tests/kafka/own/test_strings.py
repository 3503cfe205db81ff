"""Free strings: the Kafka wiki's Single Reader/Writer to the letter, and what sets, queues and tokens add to it."""

from __future__ import annotations

import pytest
import redis
from confluent_kafka.admin import AdminClient

from sidecar.v1 import control_pb2 as control
from tests.conftest import OwnValkey, StartNode, Unique
from tests.nodes import NodeProcess
from tests.own import FENCING, WAIT, OwnClient, new_token, string, topic
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for


def generations(told: control.OwnResponse) -> list[int]:
    assert told.error == control.NONE, told
    return [found.generation for found in told.ownerships]


# The wiki's rules -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [None, 0, 1, 5])
def test_a_free_string_is_owned_under_generation_1(node: NodeProcess, unique: Unique, asked: int | None) -> None:
    with OwnClient(node.bootstrap) as own:
        assert generations(own.own(string(unique("leader")), generation=asked)) == [1]


@pytest.mark.parametrize(("asked", "got"), [(4, 5), (5, 5), (9, 9), (0, 1)])
def test_an_equal_or_lower_holder_is_severed(node: NodeProcess, unique: Unique, asked: int, got: int) -> None:
    leader, last = string(unique("leader")), []
    for _ in range(4):  # 1, 2, 3, 4
        last.append(OwnClient(node.bootstrap))
        assert generations(last[-1].own(leader, generation=len(last))) == [len(last)]
    assert all(severed.is_severed() for severed in last[:-1])
    with OwnClient(node.bootstrap) as own:
        assert generations(own.own(leader, generation=asked)) == [got]
        assert last[-1].is_severed()
        assert own.owner(leader).generation == got
    for client in last:
        client.close()


def test_a_higher_holder_stays(node: NodeProcess, unique: Unique) -> None:
    leader = string(unique("leader"))
    with OwnClient(node.bootstrap) as zero, OwnClient(node.bootstrap) as first, OwnClient(node.bootstrap) as own:
        assert generations(zero.own(leader)) == [1]
        assert generations(first.own(leader, generation=7)) == [7]
        refused = own.own(leader, generation=6)
        assert (refused.error, refused.ownerships[0].generation) == (control.LOWER_GENERATION, 7)
        assert first.owner(leader).generation == 7  # its connection still stands


def test_a_severed_owner_loses_everything_that_its_connection_owned(node: NodeProcess, unique: Unique) -> None:
    one, other = string(unique("one")), string(unique("other"))
    with OwnClient(node.bootstrap) as first, OwnClient(node.bootstrap) as second:
        assert generations(first.own(one, other)) == [1, 1]
        assert generations(second.own(one, mode=FENCING)) == [2]
        assert first.is_severed()
        wait_for(lambda: not second.owner(other).owner_session, "the other string to be free")
        assert generations(second.own(other)) == [1]


def test_generation_1_again_once_it_was_free(node: NodeProcess, unique: Unique) -> None:
    leader, token = string(unique("leader")), new_token()
    with OwnClient(node.bootstrap) as zero, OwnClient(node.bootstrap) as own:
        assert generations(zero.own(leader)) == [1]
        assert generations(own.own(leader, generation=8, token=token)) == [8]
        assert own.release(token).error == control.NONE
        assert generations(own.own(leader)) == [1]


def test_a_group_has_strings_of_its_own(node: NodeProcess, unique: Unique) -> None:
    leader = string(unique("leader"))
    with OwnClient(node.bootstrap) as first, OwnClient(node.bootstrap) as second:
        assert generations(first.own(leader)) == [1]
        assert generations(second.own(leader, group="billing")) == [1]
        assert second.own(leader).error == control.HELD


# Sets, queues, tokens -------------------------------------------------------------------------------------------------


def test_a_set_of_strings_and_topics_is_owned_as_a_whole_or_not_at_all(
    services: Services, node: NodeProcess, unique: Unique
) -> None:
    name, leader = create_topic(services.kafka_bootstrap), string(unique("leader"))
    with OwnClient(node.bootstrap) as holder, OwnClient(node.bootstrap) as own:
        assert holder.own(leader).error == control.NONE
        refused = own.own(topic(name), leader)
        assert (refused.error, [told.error for told in refused.ownerships]) == (control.HELD, [0, control.HELD])
        assert own.owner(topic(name)).generation == 0
        token = new_token()
        own.begin_own(topic(name), leader, mode=WAIT, wait_ms=30_000, token=token)
        with OwnClient(node.bootstrap) as third:
            wait_for(lambda: len(third.owners(leader).waiting) == 1, "the set to wait")
            assert third.own(topic(name)).error == control.HELD  # nobody overtakes
            holder.close()
            assert generations(own.finish(control.OwnResponse)) == [1, 1]
            assert own.release(token).error == control.NONE
            assert [third.owner(found).owner_session for found in (topic(name), leader)] == ["", ""]


def test_those_who_wait_are_served_in_their_order(node: NodeProcess, unique: Unique) -> None:
    leader = string(unique("leader"))
    clients = [OwnClient(node.bootstrap) for _ in range(5)]
    tokens = [new_token() for _ in clients]
    assert generations(clients[0].own(leader, token=tokens[0])) == [1]
    for number in range(1, 5):
        assert (
            clients[number].own(leader, mode=WAIT, token=tokens[number], name=f"n{number}").error == control.TIMED_OUT
        )
        clients[number].begin_own(leader, mode=WAIT, token=tokens[number], name=f"n{number}", wait_ms=30_000)
    with OwnClient(node.bootstrap) as observer:
        assert [found.name for found in observer.owners(leader).waiting] == ["n1", "n2", "n3", "n4"]
        for number in range(1, 5):
            clients[number - 1].close()
            assert generations(clients[number].finish(control.OwnResponse)) == [1]
            assert observer.owner(leader).owner_name == f"n{number}"
    clients[-1].close()


def test_who_only_asks_now_and_then_keeps_the_place_like_one_who_waits(node: NodeProcess, unique: Unique) -> None:
    leader, asks, waits = string(unique("leader")), new_token(), new_token()
    with OwnClient(node.bootstrap) as holder, OwnClient(node.bootstrap) as a, OwnClient(node.bootstrap) as b:
        assert generations(holder.own(leader)) == [1]
        assert a.own(leader, mode=WAIT, token=asks, name="asks").error == control.TIMED_OUT
        for _ in range(4):  # a place lapses 5 s after it was asked for last
            assert b.own(leader, mode=WAIT, token=waits, name="waits", wait_ms=2_000).error == control.TIMED_OUT
            assert a.own(leader, mode=WAIT, token=asks, name="asks").error == control.TIMED_OUT
            assert [found.name for found in holder.owners(leader).waiting] == ["asks", "waits"]


def test_a_place_and_a_promotion_that_nobody_asks_for_pass_on(node: NodeProcess, unique: Unique) -> None:
    leader = string(unique("leader"))
    with OwnClient(node.bootstrap) as deaf, OwnClient(node.bootstrap) as late, OwnClient(node.bootstrap) as next_one:
        with OwnClient(node.bootstrap) as first:
            assert generations(first.own(leader)) == [1]
            assert deaf.own(leader, mode=WAIT, name="deaf").error == control.TIMED_OUT
            next_one.begin_own(leader, mode=WAIT, name="next", wait_ms=60_000)
            assert late.own(leader, mode=WAIT, name="late").error == control.TIMED_OUT
            wait_for(lambda: len(late.owners(leader).waiting) == 3, "all to wait")
        (granted,) = next_one.finish(control.OwnResponse).ownerships
        assert (granted.owner_name, granted.generation) == ("next", 1)
        wait_for(lambda: not late.owners(leader).waiting, "the last place to lapse")


def test_two_sets_that_overlap_never_wait_for_each_other(node: NodeProcess, unique: Unique) -> None:
    one, two, three = (string(unique(name)) for name in ("one", "two", "three"))
    with OwnClient(node.bootstrap) as holder, OwnClient(node.bootstrap) as a, OwnClient(node.bootstrap) as b:
        held = new_token()
        assert generations(holder.own(one, two, three, token=held)) == [1, 1, 1]
        first, second = new_token(), new_token()
        assert a.own(one, two, mode=WAIT, token=first).error == control.TIMED_OUT
        assert b.own(three, two, mode=WAIT, token=second).error == control.TIMED_OUT
        b.begin_own(three, two, mode=WAIT, token=second, wait_ms=30_000)
        a.begin_own(one, two, mode=WAIT, token=first, wait_ms=30_000)
        assert holder.release(held, two, three).error == control.NONE  # b came later: two is a's first
        assert holder.owner(two).owner_session == ""
        assert holder.release(held).error == control.NONE
        assert generations(a.finish(control.OwnResponse)) == [1, 1]
        assert a.release(first).error == control.NONE
        assert generations(b.finish(control.OwnResponse)) == [1, 1]


def test_a_lost_string_is_told_by_watch(node: NodeProcess, unique: Unique) -> None:
    leader, token = string(unique("leader")), new_token()
    with OwnClient(node.bootstrap) as own, OwnClient(node.bootstrap) as watch, OwnClient(node.bootstrap) as rival:
        assert generations(own.own(leader, token=token, producer_id=4_100_001)) == [1]
        assert watch.watch(token).error == control.NONE
        assert generations(rival.own(leader, generation=1)) == [2]
        assert own.is_severed()
    with OwnClient(node.bootstrap) as again:
        told = again.own(leader, token=token, producer_id=4_100_001)
        assert (told.error, told.ownerships[0].error) == (control.DEPOSED, control.DEPOSED)


def test_a_thousand_strings_are_owned_in_one_request(node: NodeProcess, unique: Unique) -> None:
    prefix, token = unique("shard"), new_token()
    shards = [string(f"{prefix}-{number}") for number in range(1_000)]
    with OwnClient(node.bootstrap) as own, OwnClient(node.bootstrap) as other:
        assert generations(own.own(*shards, token=token)) == [1] * 1_000
        refused = other.own(*shards[990:], string(f"{prefix}-free"))
        assert [told.error for told in refused.ownerships] == [control.HELD] * 10 + [control.NONE]
        assert own.release(token).error == control.NONE
        assert generations(other.own(*shards)) == [1] * 1_000
        too_many = own.own(*shards, string("one more"))
        assert (too_many.error, "1 to 1000 claims" in too_many.message) == (control.INVALID_REQUEST, True)


# Nodes and Redis ------------------------------------------------------------------------------------------------------


def test_a_claim_bound_to_a_session_follows_it_to_another_node(
    services: Services, node_process: StartNode, unique: Unique
) -> None:
    cluster, leader = unique("own"), string(unique("leader"))
    nodes = {number: node_process(cluster=cluster, node_id=number, LEASE_MS="1000") for number in (1, 2)}
    with OwnClient(nodes[1].bootstrap) as own:
        wait_for(lambda: own.own(leader).error in (control.NONE, control.NOT_SERVING), "a coordinator")
        serving = own.owner(leader).serving_node or 1
    wait_for(lambda: _owner(nodes, leader) == "", "the first claim to end")
    other, token = 3 - serving, new_token()
    with OwnClient(nodes[serving].bootstrap) as own, OwnClient(nodes[serving].bootstrap) as plain:
        assert generations(own.own(leader, token=token, producer_id=4_100_010, name="a")) == [1]
        assert generations(plain.own(string(leader.name + "-plain"))) == [1]
        with OwnClient(nodes[other].bootstrap) as elsewhere:
            told = elsewhere.own(string(unique("another")))
            assert (told.error, told.ownerships[0].serving_node) == (control.NOT_SERVING, serving)
            assert elsewhere.owner(leader).owner_name == "a"  # every node can tell
        nodes[serving].kill()
    with OwnClient(nodes[other].bootstrap) as own:
        wait_for(
            lambda: own.own(leader, token=token, producer_id=4_100_010, name="a").error == 0, "the claim to follow"
        )
        assert own.owner(leader).generation == 1
        assert generations(own.own(string(leader.name + "-plain"))) == [1]  # bound to a connection: it died with it


def _owner(nodes: dict[int, NodeProcess], resource: control.Resource) -> str:
    with OwnClient(nodes[1].bootstrap) as own:
        return own.owner(resource).owner_session


def test_without_redis_nothing_new_is_claimed_and_nothing_is_lost(
    own_valkey: OwnValkey, node_process: StartNode, unique: Unique
) -> None:
    valkey = own_valkey()
    node = node_process(redis=valkey.url, LEASE_MS="1000")
    leader, token = string(unique("leader")), new_token()
    with OwnClient(node.bootstrap) as own, OwnClient(node.bootstrap) as other:
        assert generations(own.own(leader, token=token)) == [1]
        valkey.stop()
        wait_for(lambda: other.own(string("new")).error == control.UNAVAILABLE, "the node to notice")
        assert own.own(leader, token=token).error == control.NONE
        assert own.owner(leader).generation == 1
        assert own.release(token).error == control.NONE


def test_a_set_that_does_not_fit_into_the_log_deposes_nobody_and_says_so(
    services: Services, node: NodeProcess, unique: Unique
) -> None:
    orders, names = create_topic(services.kafka_bootstrap), [f"{number:04d}" + " " * 1016 for number in range(999)]
    with OwnClient(node.bootstrap) as holder, OwnClient(node.bootstrap) as own:
        assert generations(holder.own(topic(orders))) == [1]
        assert generations(own.own(string(unique("first frames are short")))) == [1]
        refused = own.own(topic(orders), *map(string, names), mode=FENCING)
        assert (refused.error, "claim fewer at once" in refused.message) == (control.INVALID_REQUEST, True)
        assert holder.owner(topic(orders)).generation == 1


def test_nothing_is_above_the_highest_generation_but_0(node: NodeProcess, unique: Unique) -> None:
    leader, highest = string(unique("leader")), 2**63 - 1
    with OwnClient(node.bootstrap) as zero, OwnClient(node.bootstrap) as holder, OwnClient(node.bootstrap) as own:
        assert generations(zero.own(leader)) == [1]
        assert generations(holder.own(leader, generation=highest)) == [highest]
        for refused in (own.own(leader, mode=FENCING), own.own(leader, generation=highest)):
            assert (refused.error, "ask for generation 0" in refused.message) == (control.HELD, True)
        assert generations(own.own(leader, generation=0)) == [1]


@pytest.mark.parametrize("together", [False, True], ids=["all", "some"])
def test_what_was_released_unheard_is_not_told_as_granted(node: NodeProcess, unique: Unique, together: bool) -> None:
    name, kept, token, before = string(unique("a")), string(unique("b")), new_token(), new_token()
    wanted = (name, kept) if together else (name,)
    with OwnClient(node.bootstrap) as owner, OwnClient(node.bootstrap) as waiter, OwnClient(node.bootstrap) as other:
        assert owner.own(name, token=before).error == control.NONE
        assert waiter.own(*wanted, mode=WAIT, token=token).error == control.TIMED_OUT
        assert owner.release(before).error == control.NONE
        wait_for(lambda: other.owner(name).owner_session, "the promotion")
        assert waiter.release(token, name).error == control.NONE
        told = other.watch(token, 0)
        assert [each.resource.name for each in told.changed] == ([kept.name] if together else [])


# Fencing tokens -------------------------------------------------------------------------------------------------------


def test_a_fencing_token_rises_whatever_is_lost_between_two_owners(
    services: Services, own_valkey: OwnValkey, node_process: StartNode, unique: Unique
) -> None:
    """Let go of, Redis emptied, the node restarted, the internal topics deleted: the generation is 1 each time."""
    valkey, leader, reading = own_valkey(), string(unique("leader")), topic(create_topic(services.kafka_bootstrap))
    node = node_process(redis=valkey.url)
    tokens: list[tuple[int, int]] = []

    def lead() -> None:
        with OwnClient(node.bootstrap) as own:
            held = new_token(), new_token()
            wait_for(lambda: own.own(string(unique("other"))).error != control.UNAVAILABLE, "a coordinator")
            found = [own.own(leader, token=held[0]), own.own(reading, group="g", token=held[1])]
            assert [generations(each) for each in found] == [[1], [1]]
            tokens.append((found[0].ownerships[0].fencing_token, found[1].ownerships[0].fencing_token))
            assert own.owner(leader).fencing_token == tokens[-1][0]
            assert [own.release(held[0]).error, own.release(held[1], group="g").error] == [control.NONE] * 2

    lead()
    lead()
    with redis.Redis.from_url(valkey.url) as client:
        client.flushall()
        lead()
        node.stop()
        client.flushall()
        node.start()
        lead()
        node.stop()
        client.flushall()
    admin = AdminClient({"bootstrap.servers": services.kafka_bootstrap})
    names = [f"__sidecar_{node.cluster}{rest}" for rest in ("", "_snapshots", "_events")]
    for deleted in admin.delete_topics(names).values():
        deleted.result(30)
    wait_for(lambda: not set(names) & set(admin.list_topics(timeout=10).topics), "the topics are gone")
    node.start()
    lead()
    flat = [token for pair in tokens for token in pair]
    assert flat[0] > 0
    assert flat == sorted(set(flat))


def test_a_topics_fencing_token_is_its_generation(node: NodeProcess, services: Services) -> None:
    written = topic(create_topic(services.kafka_bootstrap))
    for generation in (1, 2):
        with OwnClient(node.bootstrap) as own:
            answer = own.own(written)
            assert (generations(answer), answer.ownerships[0].fencing_token) == ([generation], generation)
            assert own.owner(written).fencing_token == generation
