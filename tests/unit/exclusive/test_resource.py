"""One work at a time: it always ends, and whatever waits for it is answered."""

from __future__ import annotations

from typing import Any

import pytest

from sidecar.exclusive.offers import Offer
from sidecar.ownership.state import Claimant
from sidecar.writing.upkeep import Upkeep
from tests.unit.exclusive.paper_cluster import Client, cluster

BUSY = 5


async def test_a_work_that_fails_as_nobody_expects_ends_and_answers_what_waited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fails(*_: Any) -> None:
        raise LookupError("work")

    async with cluster() as paper:
        node = paper.node()
        monkeypatch.setattr(node.whole, "_claim", fails)
        offered = [Client(number).offer(node, number) for number in (7, 8, 9)]
        assert [(await each).error for each in offered] == [BUSY] * 3
        await node.tasks.cancel()
        assert (node.whole.busy, node.held) == (False, 0)
        assert [str(error) for error in node.failures] == ["work"]
        node.failures.clear()


async def test_a_batch_that_cannot_be_judged_is_answered_as_all_others_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with cluster() as paper:
        node = paper.node()
        owner, broken, last = Client(7), Client(8), Client(9)
        admitted = node.env.bindings.admitted

        def judged(topic: str, claimant: Claimant) -> Claimant | None:
            if claimant.session == broken.session:
                raise ValueError(claimant.session)
            return admitted(topic, claimant)

        monkeypatch.setattr(node.env.bindings, "admitted", judged)
        offered = [client.offer(node, 1) for client in (owner, broken, last)]
        assert [(await each).error for each in offered] == [0, BUSY, BUSY]
        await node.tasks.cancel()
        assert [str(error) for error in node.failures] == ["pid:8"]
        node.failures.clear()
        with pytest.raises(ValueError, match="pid:8"):
            broken.offer(node, 2)
        assert node.held == 0


async def test_a_batch_that_cannot_be_written_is_answered_and_its_bytes_are_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with cluster() as paper:
        node, owner = paper.node(), Client(7)
        assert await owner.send(node, 1) == 0

        def takes(*_: object) -> bool:
            raise ValueError("its age")

        def offers(offer: Offer) -> None:
            with pytest.raises(ValueError, match="its age"):
                node.whole.offer(offer)

        with monkeypatch.context() as patch:
            patch.setattr(Upkeep, "takes", takes)
            answered = owner.offer(node, 2, to=offers)
        assert (answered.done(), node.held) == (True, 0)
        assert (await answered).error == BUSY
        assert await owner.send(node, 2, sequence=1) == 0
        assert paper.kafka.log().values == [1, 2]


async def test_a_batch_whose_client_left_during_a_work_is_not_judged_after_it() -> None:
    async with cluster() as paper:
        node = paper.node()
        owner, gone, rival = Client(7), Client(8), Client(9)
        sent, left, refused = [client.offer(node, 1) for client in (owner, gone, rival)]
        gone.is_open = False
        assert [(await each).error for each in (sent, left, refused)] == [0, BUSY, 44]
        assert node.refusals == ["not_owner"]
