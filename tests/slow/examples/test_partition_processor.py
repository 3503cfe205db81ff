"""`examples/partition_processor.py`: every input record counts once, whichever process is killed, stalls or joins."""

from __future__ import annotations

from collections import defaultdict

import pytest

from tests.conftest import Unique
from tests.nodes import NodeProcess
from tests.rest import Rest
from tests.slow.examples.conftest import Start, Topic
from tests.slow.examples.programs import PATIENCE, Entry, Logs, Program, check_history
from tests.topics import delete_records
from tests.wait import wait_for

EXAMPLE = "partition_processor"
PARTITIONS = range(4)


class Shop:
    """Orders, totals, and processes that make these of those."""

    def __init__(self, logs: Logs, node: NodeProcess, rest: Rest, orders: str, totals: str, start: Start) -> None:
        self.orders, self.totals, self.rest = orders, totals, rest
        self._logs, self._start = logs, start
        self._common = ("--bootstrap", node.bootstrap, "--orders-topic", orders, "--partitions", str(len(PARTITIONS)))

    def feed(self, orders: int, pause: float = 0) -> Program:
        return self._start(EXAMPLE, "feed", *self._common, "--orders", str(orders), "--pause", str(pause))

    def processor(self, name: str) -> Program:
        return self._start(
            EXAMPLE, "process", *self._common, "--totals-topic", self.totals, "--group", self.totals, "--name", name
        )

    def wait_for_owners(self, *names: str) -> dict[str, list[int]]:
        """Until these, and nobody else, have written the newest total of every partition; who has which."""

        def found() -> dict[str, list[int]] | None:
            shares = defaultdict[str, list[int]](list)
            for partition in PARTITIONS:
                log = self.log(self.totals, partition)
                shares[log[-1].headers["leader"] if log else ""].append(partition)
            return dict(shares) if sorted(shares) == sorted(names) else None

        shares = wait_for(found, f"{names} to be at work", PATIENCE)
        assert shares is not None
        return shares

    def delete_orders(self) -> None:
        for partition in PARTITIONS:
            delete_records(self._logs.kafka, self.orders, partition)

    def log(self, topic: str, partition: int) -> list[Entry]:
        return self._logs(topic, partition)

    def wait_until_all_is_processed(self) -> None:
        def done() -> bool:
            ends = [(self.log(self.orders, each)[-1], self.log(self.totals, each)[-1:]) for each in PARTITIONS]
            return all([order.offset] == [total.sequence_id for total in totals] for order, totals in ends)

        wait_for(done, "the last order of each partition", PATIENCE)

    def check(self) -> dict[int, list[str]]:
        """Who wrote each partition's totals, in turn. Each order counts there once, in order, on the totals before."""
        turns: dict[int, list[str]] = {}
        for partition in PARTITIONS:
            orders, totals = self.log(self.orders, partition), self.log(self.totals, partition)
            assert orders, "every partition has orders"
            assert [total.sequence_id for total in totals] == [order.offset for order in orders]
            sums = defaultdict[str | None, int](int)
            for order, total in zip(orders, totals, strict=True):
                sums[order.key] += order.value["amount"]
                assert (total.key, total.value) == (order.key, {"total": sums[order.key]})
            turns[partition] = check_history(totals)
        return turns


@pytest.fixture
def shop(logs: Logs, node: NodeProcess, rest: Rest, topic: Topic, unique: Unique, start: Start) -> Shop:
    orders, totals = unique("example-orders"), topic("totals", scope="partition")
    return Shop(logs, node, rest, orders, totals, start)


def test_every_order_counts_once_while_processes_are_killed_stall_and_join(shop: Shop) -> None:
    a = shop.processor("a")
    a.wait_for(": ours", len(PARTITIONS))
    feed, b = shop.feed(100_000, pause=0.02), shop.processor("b")
    killed = shop.wait_for_owners("a", "b")["a"]
    a.kill()
    shop.wait_for_owners("b")
    c = shop.processor("c")
    stalled = shop.wait_for_owners("b", "c")["c"]
    c.child.pause()
    shop.wait_for_owners("b")
    c.child.resume()  # in the belief that its partitions are its own
    wait_for(lambda: not c.child.alive or c.output.count("the group gives us") > 1, "it to find out", PATIENCE)
    feed.stop()
    shop.wait_until_all_is_processed()
    b.stop()
    turns = shop.check()
    assert [turns[each][turns[each].index("a") :].count("b") > 0 for each in killed] == [True] * len(killed)
    assert [turns[each][turns[each].index("c") + 1] for each in stalled] == ["b"] * len(stalled)
    if c.child.alive:
        c.kill()  # in the middle of a rebalance, as `b` left
    else:
        assert c.child.exit_code == 4, c.output


@pytest.mark.smoke
def test_orders_that_retention_took_before_they_were_processed_are_an_error(shop: Shop) -> None:
    assert shop.feed(40).end() == 0
    shop.delete_orders()  # in front of the first process: what is left is the beginning
    assert shop.feed(40).end() == 0
    first = shop.processor("first")
    first.wait_for(": ours", len(PARTITIONS))
    shop.wait_until_all_is_processed()
    first.stop()
    shop.check()
    assert shop.feed(40).end() == 0
    before = [shop.log(shop.totals, each) for each in PARTITIONS]
    shop.delete_orders()
    late = shop.processor("late")
    assert late.end() == 1
    assert "Error: orders were gone before they were processed" in late.output
    assert [shop.log(shop.totals, each) for each in PARTITIONS] == before


def test_a_process_ends_that_an_administrator_fenced_from_a_partition(shop: Shop) -> None:
    program = shop.processor("a")
    program.wait_for(": ours", len(PARTITIONS))
    assert shop.rest.call("POST", f"/v1/topics/{shop.totals}/fence?partition=1")[0] == 200
    assert program.end() == 4
    assert "partition 1" in program.output
