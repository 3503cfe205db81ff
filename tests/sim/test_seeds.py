"""Histories by seed: what the product does is right, and the same seed is the same run, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.sim import histories
from tests.sim.histories import FAULTS, WORK, WORST
from tests.sim.history import History, Step
from tests.sim.kafka.errors import BEHIND_APPEND
from tests.sim.mutants.edits import Edit
from tests.sim.play import FAULTS as FAULTS_SEEN
from tests.sim.play import OTHERS, STEPS, by_kind
from tests.sim.shrink import shrink
from tests.sim.worker import Worker
from tests.sim.world import Shape

SEEDS = range(7000, 7004)  # `.ci/run` plays 120 others
AGAIN = (7003, 7011, 7017)
FOUND = {
    1795544568: "a deleted topic of which there is nothing but a policy",
    1795544622: "the same, behind nodes that died",
    1795544882: "a topic created anew takes a batch and not the one in front of it",
    1795545272: "a topic with sequence ids created anew with fewer partitions",
    1795544333: "a batch under way behind a refused one, which Java numbers anew",
    1795544745: "a policy that ends under batches on their way",
    1795544739: "a topic whose mode is shared and whose partitions have owners of their own",
}
"""Seeds whose histories ended badly once, and what is in them."""
FOUND_LATER = {
    1795663270: "an operator deposes the owner of a topic whose mode is shared",
    1795668567: "a client's policy is in Redis, and Kafka has taken no record of it",
    1795689232: "a node that served a topic before reads its ids anew, in place",
    1795697065: "the only node dies between Redis' decision on a policy and its record",
    1795697202: "one of two nodes does, and an operator changes the policy",
    1795703271: "three nodes die one after the other while a client makes a policy",
    1795700870: "a claim by request names the producer id of a client that has another name",
    1795706140: "a client whose refusals are lost, and whose last batch came once its rival was deposed",
    1795716589: "a leader is cut off with the first batches of a producer, and the next ones go to its successor",
}
"""The same, in the mix of that time."""
FOUND_LAST = {
    1795723250: "librdkafka takes a batch for delivered as a later one is, and the node waits for it",
    1795728845: "the same, behind answers that said of what was written that it was not",
    1795730724: "a topic is to be created again while no broker lives",
}
"""The same, in the mix before there were scenes."""
FOUND_IN_CROSSINGS = {
    1795906935: "leaders refuse batches as too large while Redis is away",
}
"""The same, in the mix with crossings."""
SCENES = {
    2: "a client pipelines through two nodes",
    5: "Redis is emptied in the middle of a takeover",
    6: "a topic is created anew in the middle of a takeover",
    7: "two nodes are asked for the same at once",
    12: "a shadow is made again under its readers",
    13: "a node is suspended for longer than brokers remember",
    3054: "a shadow is deleted as the history ends",
    3141: "a topic was to be deleted after the history's end",
}
"""Seeds whose histories have each of the scenes (`RARE`)."""
REMOVED = {
    38: ("topic deleted", "a source is created again under its shadow's readers"),
    45: ("node killed", "records are deleted through a node that dies before its next snapshot"),
    182: ("cleaning set", "compaction would take a record whose id no snapshot has"),
    350: ("records deleted", "a fence's marker is deleted"),
    410: ("answers compared", "two replicas clean a marker, each at its own moment"),
    492: ("broker_killed", "brokers are away while a node has to protect ids from compaction"),
    1133: ("path cut", "a node has to protect ids from compaction, and one broker is silent to it"),
    5274: ("node frozen", "all nodes stand still when a topic with ids would be compacted: no node could survive that"),
}
"""Plain seeds that find the mutants of what is removed (`mutants/removals.py`): what takes effect in them, and what is
in their histories.
"""


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as found:
        yield found


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_wrong(worker: Worker, seed: int) -> None:
    outcome = worker.play(histories.make(seed))
    assert outcome.wrong == []
    assert outcome.delivered


@pytest.mark.parametrize("seed", SCENES, ids=lambda seed: f"{seed}: {SCENES[seed]}")
def test_nothing_is_wrong_with_a_scene(worker: Worker, seed: int) -> None:
    outcome = worker.play(histories.make(seed, histories.RARE))
    assert outcome.wrong == []
    assert outcome.delivered or outcome.effects["operator: policy"]


@pytest.mark.parametrize("seed", REMOVED, ids=lambda seed: f"{seed}: {REMOVED[seed][1]}")
def test_nothing_is_wrong_where_records_are_removed(worker: Worker, seed: int) -> None:
    outcome = worker.play(histories.make(seed))
    assert outcome.wrong == []
    assert outcome.effects[REMOVED[seed][0]]


@pytest.mark.parametrize("seed", FOUND, ids=lambda seed: f"{seed}: {FOUND[seed]}")
def test_what_was_wrong_once_is_not_wrong_again(worker: Worker, seed: int) -> None:
    assert worker.play(histories.make(seed, histories.FIRST)).wrong == []


@pytest.mark.parametrize("seed", FOUND_LATER, ids=lambda seed: f"{seed}: {FOUND_LATER[seed]}")
def test_what_was_wrong_later_is_not_wrong_again(worker: Worker, seed: int) -> None:
    assert worker.play(histories.make(seed, histories.BY_NAME)).wrong == []


@pytest.mark.parametrize("seed", FOUND_LAST, ids=lambda seed: f"{seed}: {FOUND_LAST[seed]}")
def test_what_was_wrong_last_is_not_wrong_again(worker: Worker, seed: int) -> None:
    assert worker.play(histories.make(seed, histories.BEFORE_SCENES)).wrong == []


@pytest.mark.parametrize("seed", FOUND_IN_CROSSINGS, ids=lambda seed: f"{seed}: {FOUND_IN_CROSSINGS[seed]}")
def test_what_was_wrong_in_crossings_is_not_wrong_again(worker: Worker, seed: int) -> None:
    assert worker.play(histories.make(seed)).wrong == []


def test_the_same_seed_is_the_same_run(worker: Worker) -> None:
    with Worker() as other:
        for seed in AGAIN:
            first, second = (each.play(histories.make(seed)) for each in (worker, other))
            assert (first.digest, first.steps, first.effects) == (second.digest, second.steps, second.effects)


def test_a_topic_that_grows_takes_sequence_ids_of_new_sessions(worker: Worker) -> None:
    work = {
        "app": "app0", "topic": "counted", "library": "java", "mode": "", "ids": False, "every": 0.02, "batches": 20,
        "burst": 1, "partitions": 1,
    }  # fmt: skip
    steps = (Step(0.1, "produce", work), Step(0.8, "grow"))
    assert worker.play(History(1, Shape(nodes=1), 1.5, steps, {})).wrong == []


def produced(**more: object) -> dict[str, object]:
    """The arguments of an application that writes."""
    args = {
        "app": "app0", "topic": "counted", "library": "java", "mode": "", "ids": True, "every": 0.02, "batches": 60,
        "burst": 1, "partitions": 1,
    }  # fmt: skip
    return {**args, **more}


@pytest.mark.parametrize(
    "step",
    [
        Step(0.8, "many requests", {"count": 8_000}),
        Step(0.8, "many bombs", {"topic": "counted", "count": 60, "size": 1_000_000}),
        Step(0.8, "bomb", {"topic": "counted", "size": 40_000_000, "client": "bomber", "ids": True}),
        Step(0.8, "many names", {"count": 20_000, "length": 20}),
    ],
    ids=lambda step: step.kind,
)
def test_nothing_that_a_client_sends_holds_a_node(worker: Worker, step: Step) -> None:
    outcome = worker.play(History(1, Shape(nodes=2), 2.0, (Step(0.1, "produce", produced()), step), {}))
    assert outcome.wrong == []
    assert outcome.effects[step.kind]


def test_nothing_goes_wrong_any_more_once_all_is_healed(worker: Worker) -> None:
    """As in seed 1795750940, whose last step came a rounding behind the end."""
    late = Step(1.01, "refuse", {"broker": 0, "api": 0, "error": 51, "times": 5, "after_append": False})
    outcome = worker.play(History(1, Shape(nodes=1), 1.0, (Step(0.1, "produce", produced()), late), {}))
    assert outcome.wrong == []
    assert "refused" not in outcome.effects


def test_a_client_that_ends_by_a_brokers_false_45_is_not_stuck(worker: Worker) -> None:
    """librdkafka ends by 45 for the batch that comes next (as in the crossing of seed 1032)."""
    false = Step(0.3, "refuse", {"broker": 0, "api": 0, "error": 45, "times": 1, "after_append": False})
    work = Step(0.02, "produce", produced(topic="ledger", library="librdkafka", every=0.01, batches=100))
    outcome = worker.play(History(1, Shape(nodes=1), 1.0, (work, false), {}))
    assert outcome.wrong == []
    assert outcome.effects["refused"]
    assert outcome.codes[45]


@pytest.mark.parametrize("seed", range(4))
def test_a_topic_created_anew_under_batches_that_wait_is_answered_once(worker: Worker, seed: int) -> None:
    """The batch in front in a gate found another topic under its name: all that waited was answered, it too."""
    work = produced(library="librdkafka", every=0.05, names=5, repeats=0.3)
    steps = (Step(0.2, "produce", work), Step(1.0, "delete topic", {"topic": "counted", "lasts": 0.044}))
    assert worker.play(History(seed, Shape(nodes=2), 1.05, steps, {"latency": 0.002})).wrong == []


def test_a_node_that_starts_behind_a_deleted_policy_stops_nobody(worker: Worker) -> None:
    """The nodes that had read the policy waited for ever for the one that never heard of it."""
    steps = (
        Step(0.1, "operate", {"action": "prefix", "topic": "counted", "shadow": "mirror"}),
        Step(1.6, "kill node", {"node": 2, "fuse": 1, "lasts": 0.3, "silently": False}),
        Step(2.0, "produce", produced(topic="ledger", every=0.1, batches=10)),
    )
    for seed in range(4):  # the seed decides which client asks which node for what
        assert worker.play(History(seed, Shape(nodes=2), 4.0, steps, {})).wrong == []


def test_a_node_that_dies_at_any_moment_of_a_clients_first_policy_keeps_no_client_waiting(worker: Worker) -> None:
    """At some of these moments Redis alone has the policy: a node that leaves it to the dead one is too late then."""
    work = Step(0.1, "produce", produced(topic="ordinary", mode="exclusive", ids=False, every=0.05, batches=20))
    waits = Edit("sidecar/policy/catalog.py", "_FINISH_S: Final = 1.0", "_FINISH_S: Final = 60.0")
    too_late = False
    with Worker((waits,)) as other:
        for fuse in range(75, 100):
            death = Step(0.1, "kill node", {"node": 1, "fuse": fuse, "lasts": 0.3, "silently": False})
            history = History(1, Shape(nodes=1), 1.5, (work, death), {"latency": 0.002})
            assert worker.play(history).wrong == []
            too_late = too_late or other.play(history).wrong != []
    assert too_late


def test_what_a_client_was_refused_without_hearing_of_it_is_not_acknowledged(worker: Worker) -> None:
    """The answers are lost, an operator deposes the rival, and the client's next batch comes; then all of them again.
    That batch was written, so the refused ones passed for duplicates under the client's next epoch (seed 1795706140).
    """
    writes = {"topic": "counted", "every": 0.1, "batches": 20, "burst": 2, "partitions": 2}
    steps = (
        Step(0.14, "produce", produced(**writes, library="sarama", mode="exclusive_with_fencing")),
        Step(0.27, "produce", produced(**writes, app="app1")),
        Step(0.62, "lose answers", {"node": 1, "other": "clients", "share": 1.0, "lasts": 1.0}),
        Step(0.66, "lose answers", {"node": 2, "other": "clients", "share": 1.0, "lasts": 1.0}),
        Step(1.16, "operate", {"action": "fence", "topic": "counted", "shadow": "mirror"}),
        *(Step(1.64, "reset", {"node": node, "other": "clients", "share": 1.0}) for node in (1, 2)),
    )
    for seed in range(3, 7):
        outcome = worker.play(History(seed, Shape(nodes=2), 3.0, steps, {"latency": 0.001}))
        assert outcome.wrong == []
        assert outcome.effects["answers lost"]


@pytest.mark.parametrize("topic", ["shared", "counted"])
def test_a_batch_in_the_log_is_not_refused_as_too_large_when_it_comes_again(worker: Worker, topic: str) -> None:
    """Its answer is lost, and the limit falls before its node sends it again: only the log behind a fence shows it."""
    steps = (
        Step(0.1, "produce", produced(topic=topic, ids=topic == "counted", size=2_000, every=0.01)),
        Step(0.5, "refuse", {"broker": 0, "api": 0, "error": 7, "times": 1, "after_append": True}),
        Step(0.505, "limit batches", {"topic": topic, "size": 1_000, "lasts": 0.3}),
    )
    codes: list[dict[int, int]] = []
    for seed in range(1, 9):
        outcome = worker.play(History(seed, Shape(nodes=1), 1.5, steps, {"latency": 0.0005}))
        assert outcome.wrong == []
        codes.append(outcome.codes)
    # In one at least the client is asked to send it again, and hears then that it is in the log.
    assert any(found.get(7) and found.get(46) for found in codes)


def test_behind_lost_ownership_records_every_promise_holds(worker: Worker) -> None:
    """Two applications take the topic from each other, and the newest records of that are lost for all nodes."""
    one, other = (produced(app=app, topic="owned", mode="exclusive_with_fencing", ids=False, every=0.05, partitions=2)
                  for app in ("app0", "app1"))  # fmt: skip
    steps = (
        Step(0.1, "produce", one),
        Step(0.2, "lose records", {"broker": 1}),
        Step(1.0, "produce", other),
        *(Step(at, "restart", {"app": app}) for at, app in ((2.0, "app0"), (3.0, "app1"), (4.8, "app0"))),
    )
    outcome = worker.play(History(1, Shape(nodes=2), 6.0, steps, {"latency": 0.002}))
    assert outcome.wrong == []
    assert outcome.effects["ownership records lost"]


def test_nodes_find_in_a_compacted_ownership_topic_what_they_need(worker: Worker) -> None:
    """Two applications take the topic from each other, and nodes start behind each compaction."""
    one, other = (produced(app=app, topic="owned", mode="exclusive_with_fencing", ids=False, every=0.05, partitions=2)
                  for app in ("app0", "app1"))  # fmt: skip
    steps = (
        Step(0.1, "produce", one),
        Step(0.8, "produce", other),
        *(
            step
            for number, at in ((1, 1.5), (2, 2.5), (1, 3.5))
            for step in (
                Step(at, "compact", {"topic": "__sidecar_default"}),
                Step(at, "kill node", {"node": number, "fuse": 1, "lasts": 0.2, "silently": False}),
                Step(at + 0.5, "restart", {"app": f"app{number - 1}"}),
            )
        ),
    )
    outcome = worker.play(History(1, Shape(nodes=2), 4.5, steps, {"latency": 0.002}))
    assert outcome.wrong == []
    assert outcome.effects["compacted"] >= 3


@pytest.mark.parametrize("closes", [False, True])
def test_a_reader_of_a_shadow_comes_to_its_end_unless_it_is_closed(worker: Worker, closes: bool) -> None:
    """A source that is created anew closes its shadow. What somebody else wrote beside the records changes nothing."""
    end = Step(1.2, "delete topic", {"topic": "owned", "lasts": 0.1}) if closes else Step(1.2, "reset", {
        "node": 1, "other": "clients", "share": 1.0,
    })  # fmt: skip
    steps = (
        Step(0.1, "produce", produced(topic="owned", ids=False)),
        Step(0.3, "consume", {"topic": "mirror"}),
        *(Step(0.5 + 0.1 * number, "intrude", {"topic": "__sidecar_default"}) for number in range(6)),
        end,
    )
    outcome = worker.play(History(2, Shape(nodes=2), 2.0, steps, {}))
    assert outcome.wrong == []
    assert outcome.effects["intruder wrote"]


def test_every_kind_of_fault_takes_effect(worker: Worker) -> None:
    work = Step(0.0, "produce", {
        "app": "app0", "topic": "owned", "library": "java", "mode": "", "ids": False, "every": 0.02, "batches": 100,
        "burst": 2, "partitions": 2,
    })  # fmt: skip
    faults = [
        Step(0.4, "freeze node", {"node": 2, "lasts": 0.3, "timers_first": True}),
        Step(0.5, "empty redis"),
        Step(0.6, "jump clock", {"node": 1, "by": 3600.0}),
        Step(0.7, "refuse", {"broker": 1, "api": 3, "error": 5, "times": 1, "after_append": False}),
        Step(0.8, "silence redis", {"lasts": 0.5}),
        Step(0.9, "elect", {"topic": "owned", "partition": 0, "broker": 1}),
        Step(0.9, "elect", {"topic": "owned", "partition": 0, "broker": 2}),
        Step(1.0, "kill broker", {"broker": 3, "lasts": 0.2}),
        Step(1.3, "lag metadata", {"broker": 2, "seconds": 0.5, "lasts": 1.0}),
        Step(1.4, "cut path", {"node": 1, "other": "redis", "lasts": 0.3}),
        Step(1.6, "hold markers", {"partition": -1, "lasts": 2.5}),
        Step(1.7, "kill node", {"node": 1, "fuse": 40, "lasts": 0.3, "silently": False}),
        Step(1.7, "kill node", {"node": 2, "fuse": 40, "lasts": 0.3, "silently": False}),
        Step(3.0, "suspend node", {"node": 1, "lasts": 0.3}),
        Step(3.5, "reset", {"node": 1, "other": "clients", "share": 1.0}),
        Step(3.5, "reset", {"node": 2, "other": "clients", "share": 1.0}),
        Step(3.8, "roll back redis"),
        Step(3.8, "move coordinator", {"topic": "owned", "partition": 0}),
    ]  # fmt: skip
    history = History(1, Shape(nodes=2), 4.5, (work, *faults), {})
    outcome = worker.play(history)
    assert outcome.wrong == []
    missing = {
        "node frozen", "node killed", "node suspended", "redis emptied", "redis rolled back", "redis silent",
        "clock jumped", "leader elected", "broker_killed", "metadata lags", "path cut", "marker_held",
        "connection reset", "refused",
    } - outcome.effects.keys()  # fmt: skip
    assert not missing


def test_every_step_that_is_made_can_be_played() -> None:
    kinds = {step.kind for seed in range(500) for step in histories.make(seed).steps}
    assert kinds <= WORK | WORST | FAULTS.keys()
    assert kinds >= FAULTS.keys()
    assert kinds <= STEPS.keys()


def test_steps_are_possible_and_applications_have_names_of_their_own() -> None:
    behind: set[int] = set()
    for mix in histories.MIXES.values():
        for history in (histories.make(seed, mix) for seed in range(200)):
            behind |= {step.args["error"] for step in history.steps if step.args.get("after_append")}
            assert all(step.args.get("node", 0) <= history.shape.nodes for step in history.steps)
            apps = [step.args["app"] for step in history.steps if step.kind == "produce"]
            assert len(apps) == len(set(apps))
    assert behind == set(BEHIND_APPEND)  # what leaders refuse for itself they do not append


def test_a_history_is_what_its_seed_says_and_can_be_read() -> None:
    history = histories.make(5)
    assert history == histories.make(5)
    assert str(history).count("\n") == len(history.steps)
    assert len(history.without({0}).steps) == len(history.steps) - 1


def test_the_schedule_and_the_trace_count_from_one_zero(worker: Worker) -> None:
    step = Step(0.5, "kill broker", {"broker": 3, "lasts": 0.3})
    history = replace(histories.make(5), steps=(step,))
    trace = worker.play(history, trace=True).trace
    assert [line for line in trace if "effect broker_killed" in line] == ["   0.5000  effect broker_killed"]
    assert str(step).startswith("  0.500 ")


def test_faults_are_shown_apart_from_what_else_happened() -> None:
    found = by_kind(["claimed", "cut", "operator: look", "broker_killed"])
    assert found == {FAULTS_SEEN: ["broker_killed", "cut"], OTHERS: ["claimed", "operator: look"]}


def test_a_failing_history_is_cut_down_to_what_it_takes() -> None:
    history = replace(histories.make(5), steps=tuple(Step(float(n), "empty redis", {"n": n}) for n in range(12)))

    def fails(tried: History) -> list[str]:
        left = {step.args["n"] for step in tried.steps}
        return ["lost: it"] if {3, 8} <= left else []

    left_out = shrink(history, fails)
    assert [step.args["n"] for step in history.without(left_out).steps] == [3, 8]
