"""Situations that rules are for, each a sentence, and how many histories have them: coverage by situation, not by line.

A rule is tested only by a history in which its situation occurs. `noticing` notices them, for `--situations`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SITUATIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "[Fencing](architecture.md#fencing)": {
        "leader silent": "one leader does not confirm a fence, and another one has",
        "marker missing": "the coordinator says that a fence is complete, and a leader does not have its marker",
        "sister in flight": "one slot is fenced while another slot of the topic has batches in flight",
        "several in flight": "a topic is fenced while several of its slots have batches in flight",
        "former appended": "a batch of a former epoch is appended after the next epoch was opened, before its marker",
        "between markers": "a batch is appended between the marker of the master slot and that of its own slot",
        "former refused": "a leader refuses a batch of a former epoch",
        "fenced node writes": "a node sends a batch under an epoch that another one has replaced",
        "renewed in flight": "a fence is renewed while batches of its epoch are in flight",
        "writer forgotten": "a leader has forgotten the writer of a slot that goes on",
        "marker deleted": "a log begins after the marker of a fence",
        "coordinator moves": "the coordinator of a slot changes during a fence",
        "rebuilt leads": "a replica that was built from the log becomes leader",
        "producer id rotated": "a slot gets a new producer id, as its epochs are used up",
    },
    "[Takeover](architecture.md#takeover)": {
        "takeover meets takeover": "two nodes take the same slot at once",
        "starts over": "a takeover starts again, as the ownership topic changed meanwhile",
        "born again in takeover": "a topic is created anew during its takeover",
        "grows in takeover": "a topic gets a partition during its takeover",
        "dies before record": "a node dies between the fence and its record",
        "dies at record": "a node dies between sending the record of a takeover and reading it",
        "stops before record": "a node is stopped between the fence and its record, and goes on",
        "record without leader": "the ownership topic has no leader when a takeover begins",
        "leader changes in takeover": "a partition's leader changes during the takeover of its topic",
        "claim of a tail dropped": "a leader's producer state does not count, as its leader epoch is not the marker's",
        "uncommitted dropped": "an election drops batches of a slot that only the former leader had",
        "returns with another's": "a node that was stopped goes on, and its slot has another epoch",
        "returning session": "a session that left comes back, and goes on where it stopped",
        "turn in queue": "a session that waited becomes the owner",
        "policy in flight": "the policy of a topic changes while batches are in flight",
        "hand-over in flight": "a topic moves to another node while batches are in flight",
        "meets its ghost": "a client without idempotence comes back while its former connection owns the topic",
        "owner's deposed rival": "a batch of a deposed session is refused with PRODUCER_FENCED",
    },
    "[Sequences](architecture.md#sequences)": {
        "epoch raised": "a client raised its own epoch, and the slot gets the next one",
        "raised in flight": "the same while batches are in flight",
        "raise meets a drop": "the epoch is dropped while the next one is being opened from memory",
        "raise refused": "Kafka refuses a raise, as another node took over",
        "raise in doubt": "a raise needs a takeover, as the outcome of a batch is not known",
        "refusals unheard": "a batch follows refused ones, and the client may not have heard of all",
        "repeat below base": "a batch comes again that an earlier slot epoch appended",
    },
    "[Slots](architecture.md#slots-beside-the-master-slot)": {
        "many slots": "three slots of one topic have batches in flight at once",
        "slot evicted": "a session gets the slot of one that left",
        "evicted returns": "a session comes back whose slot another one got",
        "many sessions": "a node serves ten sessions of one topic beside each other",
    },
    "[Lanes](architecture.md#lanes)": {
        "batch behind a failed one": "a batch is acknowledged although an earlier one failed",
        "whole behind a failed one": "a whole request was sent after a batch that failed",
        "answer after the end": "a leader answers a batch whose lane has ended",
        "append after the end": "the same, and the batch was appended",
        "ends in flight": "a lane ends with batches in flight",
        "given up in doubt": "a batch is given up, and may be in the log",
        "numbering lost": "a lane's numbering can go on only under a new slot epoch",
        "silent with a successor": "a leader is silent with batches in flight, and another broker leads",
        "born again in flight": "a topic is deleted while batches are in flight",
        "grows in flight": "a topic gets a partition while batches are in flight",
    },
    "[Deduplication](architecture.md#deduplication)": {
        "id in flight": "an id comes again while the first batch with it is in flight",
        "part duplicate": "a batch has duplicates and new records",
        "repeated after failover": "ids come again of which a node knows from the log or a snapshot alone",
        "drop behind others": "a duplicate waits for earlier batches of its session",
        "dies before drop": "a node dies between deciding on a drop and its acknowledgement",
        "epoch ends in drop": "a slot epoch ends while a drop is being recorded",
        "returns with memory": "a node takes a topic again that another one served, and remembers ids",
        "names forgotten": "a partition has no room for another name, and the longest unused one is forgotten",
        "removed before snapshot": "records with ids are removed from the log before a snapshot has them",
        "ids unknown": "ids cannot be known any more, and the partition accepts nothing",
    },
    "[Redis](architecture.md#redis-arbitrates-kafka-decides)": {
        "away at claim": "Redis does not answer the claim of a takeover",
        "goes on alone": "a node goes on without Redis with the owner that it served",
        "forgets in takeover": "Redis loses its data, or goes back, during a takeover",
        "held elsewhere": "a node asks for a topic that another node serves",
        "newer in changelog": "a claim is refused, as Redis or the changelog knows of another owner",
    },
    "[Claims](architecture.md#claims)": {
        "ends with claims": "a connection ends that holds claims",
        "ends in queue": "a connection ends that waits for claims",
        "claims without Redis": "a node is asked for claims while Redis does not answer",
        "coordinator ends at work": "a coordinator's epoch ends with decisions that are not written",
        "two coordinators": "a node begins to coordinate claims while another one still believes that it does",
    },
    "[Fetch](architecture.md#a-fetch-module-by-module)": {
        "joined answer replaced": "another record is stored after readers got a joined answer of the same partition",
        "source changed": "a read of a shadow is void: its source was created anew meanwhile",
        "reader severed": "connections of waiting readers are closed, as what they read is another's now",
    },
    "[Upgrade](../operate/operations.md#restart-and-upgrade)": {
        "two releases": "nodes of the last release and of today's serve beside each other",
        "goes to today's": "a node of today's takes what a node of the last release served",
        "goes back": "a node of the last release takes what a node of today's served",
    },
    "[Simulation](#simulation)": {
        "mixed versions": "clients write through one node in three or more versions of Produce",
        "thirty sessions": "thirty sessions write in one history",
        "twenty partitions": "a topic has twenty partitions",
        "a minute": "a history lasts a minute of virtual time, or longer",
    },
}  # fmt: skip
"""Name and sentence, by the chapter that has their rules, as a link from docs/internals/testing.md."""

NAMES: Final = tuple(name for chapter in SITUATIONS.values() for name in chapter)


def table(histories: Counter[str], played: int, names: Iterable[str] = NAMES) -> str:
    """How many of the histories had each situation, as a table of Markdown."""
    wanted = set(names)
    lines = ["| rules | situation | histories | share |", "|---|---|---|---|"]
    for chapter, situations in SITUATIONS.items():
        for name, sentence in situations.items():
            if name in wanted:
                share = 100 * histories[name] / max(1, played)
                lines.append(f"| {chapter} | {sentence} | {histories[name]} | {share:.1f} % |")
    return "\n".join(lines)
