"""Holes of the first build: how its promises were broken, each put back into the code of today.

The twelve, as `Mutant.of` numbers them (1 to 6 as `model/README.md` does); rules: docs/internals/rules.md:

    1  bases lag behind where a session stands
    2  what a leader remembers and has not committed is believed
    3  the logs of all slots end at the marker of one
    4  the partitions of a topic are those of one broker, which may lag
    5  an empty answer to Fetch is the end of a log
    6  an append in doubt counts as not written, in the log (`sequences`) and in the ownership topic
    7  what a refused client sent is decompressed at once
    8  refused sequences are remembered without bound, for partitions that do not exist
    9  Metadata of very many names stops the loop
    10 a header lies about the age of its records
    11 a flood of small requests stops the loop
    12 batches that are small until they are opened stop the loop, many at a time
"""

from __future__ import annotations

from typing import Final

from tests.sim.history import History, Step
from tests.sim.mutants.bias import Bias
from tests.sim.mutants.edits import Edit
from tests.sim.mutants.mutant import Mutant
from tests.sim.mutants.schedules import Schedule, hold, produce, refusals
from tests.sim.wire import FETCH, METADATA

SEQUENCES: Final = "sidecar/forwarder/sequences.py"
TAILS: Final = "sidecar/takeover/tails.py"
TAKEOVER: Final = "sidecar/takeover/takeover.py"
SLOTS: Final = "sidecar/takeover/slots.py"
LOGS: Final = "sidecar/cluster/logs.py"
UPSTREAM: Final = "sidecar/cluster/upstream.py"
APPEND: Final = "sidecar/changelog/changelog.py"

SMALL_CIRCLE: Final = (
    Edit(SEQUENCES, "MODULUS: Final = 2**31", "MODULUS: Final = 2**12"),
    Edit(SEQUENCES, "_HALF: Final = 2**30", "_HALF: Final = 2**11"),
    Edit(SEQUENCES, "EPOCH_RECORDS: Final = 2**28", "EPOCH_RECORDS: Final = 2**9"),
    Edit(SEQUENCES, "REPEAT_WINDOW: Final = 2**27", "REPEAT_WINDOW: Final = 2**8"),
    Edit("sidecar/takeover/succession.py", "_NOWHERE: Final = 2**28", "_NOWHERE: Final = 2**9"),
    Edit("sidecar/protocol/batch.py", "SEQUENCE_MODULUS: Final = 2**31", "SEQUENCE_MODULUS: Final = 2**12"),
    Edit("tests/sim/kafka/batches.py", "LAST_SEQUENCE: Final = 2**31 - 1", "LAST_SEQUENCE: Final = 2**12 - 1"),
    Edit("tests/sim/kafka/batches.py", "_SEQUENCES: Final = 2**31", "_SEQUENCES: Final = 2**12"),
    Edit("tests/sim/clients.py", "_SEQUENCES: Final = 2**31", "_SEQUENCES: Final = 2**12"),
    Edit("tests/sim/wire.py", "(fields[11] + delta) % 2**31", "(fields[11] + delta) % 2**12"),
)
"""Sequences of brokers, clients and nodes come round after 4,096 records, and the bounds between as much sooner."""

LONG: Final = Bias(
    ("owned", "shared"),
    {"kill node": 2, "elect": 2, "refuse": 1, "reset": 1},
    count=(0, 1, 2, 3),
    apps=(1,),
    every=(0.01,),
    burst=(20,),
    partitions=(1,),
    length=(6.0,),
    batches=2_000,
)
"""Long enough for sequences to wrap."""


def _uncommitted(seed_broker: int) -> Schedule:
    """A leader appends what its followers do not fetch. The node dies, the next one looks; then the leader dies."""
    owned = {"topic": "owned", "partition": 0}
    others = [each for each in (1, 2, 3) if each != seed_broker]
    return Schedule(
        [
            produce(partitions=1, every=0.02),
            Step(0.15, "elect", {**owned, "broker": seed_broker}),
            Step(0.2, "elect", {"topic": "__sidecar_default", "partition": 0, "broker": others[0]}),
            *[Step(0.7, "cut brokers", {"one": seed_broker, "other": other, "lasts": 4.0}) for other in others],
            Step(0.8, "kill node", {"node": 1, "fuse": 1, "lasts": 5.0, "silently": False}),
            Step(0.8, "kill node", {"node": 2, "fuse": 1, "lasts": 0.1, "silently": False}),
            Step(2.6, "kill broker", {"broker": seed_broker, "lasts": 2.0}),
        ],
        length=5.0,
        jitter=0.3,
    )


def _by_leader(seed: int) -> History:
    return _uncommitted(1 + seed % 3)(seed)


def _late(seed: int) -> History:
    """What a node sent before it died arrives when the next one has fenced the master slot, and no other yet: for a
    session that wrote beside others, and now owns the topic by its new policy.
    """
    broker = 1 + seed % 3
    return Schedule(
        [
            produce(topic="shared"),
            produce(0.12, "app1", "shared"),
            Step(0.8, "cut path", {"node": 2, "other": f"kafka-{broker}", "lasts": 2.0}),
            Step(1.0, "kill node", {"node": 2, "fuse": 1, "lasts": 6.0, "silently": False}),
            Step(1.0, "hold markers", {"partition": -1, "lasts": 2.5, "of": "sidecar.default.shared/"}),
            Step(1.2, "policy", {"topic": "shared", "access_mode": "exclusive"}),
        ],
        length=4.5,
        jitter=0.1,
    )(seed)


_FEWER: Final = Edit(SLOTS, "        if missing := sorted(written.difference(there)):\n", "        if missing := []:\n")


def _growing(deaf: tuple[int, ...], *more: Step) -> Schedule:
    """A topic grows, some brokers do not hear of it, and nodes start that have heard nothing yet."""
    dead = {"fuse": 1, "lasts": 0.3, "silently": False}
    return Schedule(
        [
            produce(batches=800),
            *[Step(0.25, "lag metadata", {"broker": each, "seconds": 14.0, "lasts": 1.0}) for each in deaf],
            Step(0.3, "grow"),
            Step(0.4, "elect", {"topic": "owned", "partition": 2, "broker": 1}),
            *[Step(at, "kill node", {"node": node, **dead}) for at in _STARTS for node in (1, 2)],
            *more,
        ],
        length=11.5,
        jitter=0.02,
    )


_STARTS: Final = (5.0, 7.0, 9.0)
"""By then the leader of the new partition has given up waiting for replicas that do not hear of it."""
_LED: Final = (("owned", 0, 2), ("owned", 1, 3), ("__sidecar_default", 0, 2), ("__transaction_state", 3, 1))
_UNHEARD: Final = _growing(
    (2, 3),
    *[Step(0.15, "elect", {"topic": name, "partition": each, "broker": leader}) for name, each, leader in _LED],
    *[hold(at, "owned", 1.6, api=METADATA, brokers=(1,)) for at in _STARTS],
)
"""One broker alone has heard of it, and keeps that back. It coordinates the topic's slot (in partition 3), and leads no
other partition that a takeover needs.
"""

_CLAIM: Final = {"group": "", "strings": 1, "topic": "", "partitions": [], "mode": "", "lasts": 0.1}
_CLAIMS: Final = Schedule(
    [
        step
        for at in (0.2, 0.8, 1.4, 2.0, 2.6)
        for step in (
            hold(at, "__sidecar_default", 0.3, api=FETCH),
            *refusals(at, error=6),
            *[Step(at + 0.02, "claim", _CLAIM)] * 4,
        )
    ],
    jitter=0.02,
)
"""Claims to one string meet at the coordinator. Its append is answered with NOT_LEADER_OR_FOLLOWER, and for a moment
it does not read what is in the log.
"""

MUTANTS: Final = (
    Mutant(
        "half a circle",
        "hole 1",
        "Whatever lies up to half a circle below the base is a repeat, and no slot epoch is ever replaced.",
        (
            Edit(
                SEQUENCES,
                "        if (sequence - self.base) % MODULUS < self.limit:\n",
                "        if (sequence - self.base) % MODULUS < _HALF:\n",
            ),
            Edit(
                SEQUENCES,
                "if self.has_past and below <= REPEAT_WINDOW >= (self.next - sequence) % MODULUS:",
                "if below <= _HALF:",
            ),
        ),
        LONG,
        world=SMALL_CIRCLE,
    ),
    Mutant(
        "claims are believed",
        "hole 2",
        "What a leader remembered in front of the fence counts, also where another one leads by then.",
        (
            Edit(
                TAILS,
                "                    if found.leader_epoch == claim.leader_epoch:\n",
                "                    if True:\n",
            ),
        ),
        _by_leader,
        seeds=60,
    ),
    Mutant(
        "one marker for all slots",
        "hole 3",
        "The log of every slot is read up to the marker of the slot that was fenced first.",
        (Edit(TAKEOVER, "slots.get(name, slots[own]).stamp, ends)", "slots[own].stamp, ends)"),),
        _late,
        seeds=60,
    ),
    Mutant(
        "one broker's partitions",
        "hole 4",
        "The partitions of a topic are those that one broker knows, which may lag, however many it had.",
        (
            Edit(
                UPSTREAM,
                "await self._hedged.answers(ask, prompt or live)\n",
                "[await ask(self.__dict__.setdefault('_one', self._random.choice(live)))]\n",
            ),
            Edit(
                "sidecar/cluster/view.py",
                "                    if index not in epochs or epochs[index] < epoch:\n",
                "                    if index in epochs and epochs[index] < epoch:\n",
            ),
            _FEWER,
        ),
        _growing((3,)),
    ),
    Mutant(
        "fewer partitions than before",
        "model NoFewer",
        "A takeover is content with the partitions that brokers name, where an epoch wrote to more.",
        (_FEWER,),
        _UNHEARD,
    ),
    Mutant(
        "an empty answer is the end",
        "hole 5",
        "Reading a log ends at the first empty answer, before the end that is known.",
        (
            Edit(
                LOGS,
                "            if empty == _EMPTY_ANSWERS:\n",
                "            if empty:\n                return\n            if empty:\n",
            ),
            Edit(
                TAILS,
                """        message = f"{partition}: the fence's marker""",
                """        return _Stretch(last, -1, is_whole)
        message = f"{partition}: the fence's marker""",
            ),
        ),
        Bias(("owned", "shared"), {"kill node": 3, "empty fetches": 5}, count=(4, 6, 8)),
        seeds=120,
    ),
    Mutant(
        "an append in doubt is none",
        "hole 6",
        "A record of the ownership topic whose append was answered with an error counts as not written: the next one "
        "goes under its sequence.",
        (
            Edit(
                APPEND,
                "                in_doubt |= _leaves_doubt(answer.error)\n",
                "                raise AppendRefusedError(answer.error, f'append to {partition}')\n",
            ),
        ),
        _CLAIMS,
    ),
    Mutant(
        "a claim is the hint",
        "model KeepHint",
        "What a leader claimed takes the place of the offset in front of which all is known and committed.",
        (
            Edit(
                TAILS,
                "        return replace(self, claim=claim)\n",
                "        return replace(self, offset=claim.offset, claim=claim)\n",
            ),
        ),
        _by_leader,
        seeds=80,
    ),
    Mutant(
        "bombs are opened on the loop",
        "hole 7",
        "A batch is opened at once, however large it gets.",
        (
            Edit(
                "sidecar/dedup/content.py",
                "def _open(batch: memoryview, *, at_once: bool) -> Octets:\n",
                "def _open(batch: memoryview, *, at_once: bool) -> Octets:\n    at_once = False\n",
            ),
        ),
        Schedule(
            [
                produce(topic="counted", ids=True),
                Step(0.8, "bomb", {"topic": "counted", "size": 40_000_000, "client": "stranger", "ids": True}),
            ]
        ),
        seeds=3,
    ),
    Mutant(
        "partitions are not looked for",
        "hole 8",
        "What is refused is remembered for any partition that a client names, whether it is there or not.",
        (
            Edit(
                "sidecar/policy/admission.py",
                "        if partition < 0:\n",
                "        return None\n        if partition < 0:\n",
            ),
        ),
        Schedule([produce(), *[Step(at, "many partitions", {"topic": "owned", "count": 50}) for at in (0.8, 1.6)]]),
        seeds=3,
    ),
    Mutant(
        "names are read in one go",
        "hole 9",
        "The names that a client asks Metadata for are read in one turn of the loop.",
        (
            Edit(
                "sidecar/protocol/metadata.py",
                "        if not number % BOUNDS.turn:\n            yield\n    auto = ",
                "        if number < 0:\n            yield\n    auto = ",
            ),
        ),
        Schedule([produce(), Step(0.8, "many names", {"count": 20_000, "length": 20})]),
        seeds=3,
    ),
    Mutant(
        "requests are taken up in one go",
        "hole 11",
        "All requests of a read are taken up before others have a turn.",
        (
            Edit(
                "sidecar/network/client.py",
                "FRAMES_A_TURN: Final = range(32)\n",
                "FRAMES_A_TURN: Final = range(1_000_000)\n",
            ),
        ),
        Schedule([produce(), Step(0.8, "many requests", {"count": 8_000})]),
        seeds=3,
    ),
    Mutant(
        "a turn opens as much as it likes",
        "hole 12",
        "Batches that are small, and a megabyte when they are opened, are opened on the loop, all of a turn.",
        (
            Edit(
                "sidecar/dedup/batches.py",
                "        counts = at_once and TURN.running\n",
                "        counts = False\n",
            ),
        ),
        Schedule(
            [
                produce(topic="counted", ids=True),
                Step(0.8, "many bombs", {"topic": "counted", "count": 60, "size": 1_000_000}),
            ]
        ),
        seeds=3,
    ),
    Mutant(
        "headers are believed",
        "hole 10",
        "How old records are is what the batch's header says.",
        (
            Edit(
                "sidecar/protocol/batch.py",
                "    if attributes & _CODEC:\n        return max_timestamp\n    try:\n        at = HEADER",
                "    if True:\n        return max_timestamp\n    try:\n        at = HEADER",
            ),
        ),
        Schedule([Step(0.5, "believe", {"topic": "shared"}), Step(0.7, "believe", {"topic": "owned"})]),
        seeds=3,
    ),
)
