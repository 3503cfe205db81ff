"""Whose an epoch was, out of a compacted changelog and the events; and when a topic had no policy."""

from __future__ import annotations

import pytest

from sidecar.jobs.epochs import Former, Opening, PolicyChange, ungoverned, writers


def opening(epoch: int, name: str, *, producer_id: int = 7, slot: str = "0", at: int | None = None) -> Opening:
    return Opening(producer_id, epoch, slot, f"pid:{name}", name, 1, 1_000 + epoch, at)


def names(*args: object, **more: object) -> dict[int, str | None]:
    """The name of each epoch of producer id 7."""
    found = writers(*args, **more)  # type: ignore[arg-type]
    return {
        epoch: each.name
        for each in found
        if each.producer_id == 7
        for epoch in range(each.first_epoch, each.last_epoch + 1)
    }


def test_an_epoch_is_of_whom_it_was_opened_for_and_what_he_raised_it_to() -> None:
    found = names([opening(2, "billing"), opening(5, "ledger")], [], {"0": [7]}, {7: 6})
    assert found == {0: None, 1: None, 2: "billing", 3: "billing", 4: "billing", 5: "ledger", 6: "ledger"}


def test_a_former_writer_has_the_epochs_up_to_his_last_one() -> None:
    formers = [Former(7, 1, None), Former(7, 4, "billing")]
    found = names([opening(6, "ledger")], formers, {"0": [7]}, {7: 6})
    assert found == {0: None, 1: None, 2: "billing", 3: "billing", 4: "billing", 5: None, 6: "ledger"}


def test_what_opened_an_epoch_tells_more_than_who_had_it_up_to_there() -> None:
    found = names([opening(2, "ledger"), opening(4, "third")], [Former(7, 3, "billing")], {"0": [7]}, {7: 4})
    assert (found[1], found[2], found[4]) == ("billing", "ledger", "third")


def test_an_epoch_above_the_newest_is_nobodys_and_one_of_an_id_that_was_given_up_its_slots() -> None:
    found = writers([opening(3, "billing", producer_id=9)], [], {"0": [7, 9]}, {7: 3, 9: 3})
    assert [(each.producer_id, each.last_epoch, each.rank) for each in found] == [(7, 32_767, 0), (9, 2, 1), (9, 3, 1)]


def test_the_changelogs_word_on_an_epoch_comes_before_the_events() -> None:
    (_, found) = writers([opening(1, "billing", at=40), opening(1, "billing")], [], {"0": [7]}, {7: 1})
    assert found.opened_at == 40


def test_epochs_that_nobody_opened_are_told_from_the_one_that_was() -> None:
    (_, opened, raised) = writers([opening(1, "billing")], [Former(7, 2, "billing")], {"0": [7]}, {7: 5})
    assert [(each.first_epoch, each.last_epoch, each.opened_epoch) for each in (opened, raised)] == [
        (1, 2, 1),
        (3, 5, 1),
    ]


@pytest.mark.parametrize(("slot", "shared"), [("0", False), ("p3", False), ("1", True), ("12", True)])
def test_numbered_slots_are_shared(slot: str, shared: bool) -> None:
    (found,) = writers([opening(0, "billing", slot=slot)], [], {slot: [7]}, {7: 0})
    assert found.shared is shared


@pytest.mark.parametrize("name", ["rdkafka", "producer-1", ""])
def test_a_librarys_default_is_no_name(name: str) -> None:
    (found,) = writers([opening(0, name)], [], {"0": [7]}, {7: 0})
    assert found.name is None
    assert found.session == f"pid:{name}"


def change(at: int, pattern: str = "orders", *, deleted: bool = False) -> PolicyChange:
    return PolicyChange(at, pattern, deleted)


def test_a_topic_is_ungoverned_from_the_end_of_its_last_policy_to_the_next_one() -> None:
    changes = [change(1), change(5, deleted=True), change(9), change(12, deleted=True)]
    assert ungoverned("orders", changes, []) == [(5, 9), (12, None)]


def test_a_prefixs_policy_holds_while_the_topics_own_is_away() -> None:
    changes = [
        change(1, "or*"),
        change(2),
        change(5, deleted=True),
        change(9, "or*", deleted=True),
        change(10, "others"),
    ]
    assert ungoverned("orders", changes, []) == [(9, None)]


def test_a_policy_that_is_older_than_what_is_remembered_counts() -> None:
    assert ungoverned("orders", [change(2), change(5, deleted=True)], ["*"]) == []
    assert ungoverned("orders", [change(5, deleted=True)], []) == [(5, None)]
    assert ungoverned("orders", [change(5)], ["orders"]) == []
