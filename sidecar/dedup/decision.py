"""Decides from its sequence ids what happens to a batch (PIP-6). Pure.

Of a batch that is partly a duplicate the new records go on. Judged by its lowest id alone, as Pulsar does, it would be
dropped with them (apache/pulsar#6273).
"""

from enum import Enum, auto

from sidecar.dedup.content import Content
from sidecar.dedup.marks import Marks
from sidecar.dedup.names import NameHolders
from sidecar.protocol.ids import ClientSequence
from sidecar.protocol.records import RecordIds


class Next(Enum):
    """What happens to a batch next."""

    SEND = auto()
    WAIT = auto()
    """Until another outcome is known."""
    FENCE = auto()
    """To wait, and that the topic is taken over anew: nothing else settles what is in doubt."""
    TAKE_APART = auto()
    """To be looked at record by record, by a thread."""


def is_new(content: Content, marks: Marks, names: NameHolders, session: str) -> bool:
    """Whether all of a batch is surely new, and its session may write under its names."""
    if not content.marks:
        return not names.must_carry(session)
    name, first = content.name, content.first
    if first < 0 or name is None:
        return False
    if marks.has_doubts or first <= marks.bounds(name)[1] or not marks.knows(name):
        return False
    return names.session_of(name) == session


def decide(content: Content, marks: Marks, first: ClientSequence, own: int) -> Next | list[RecordIds]:
    """What to do with a batch with ids whose session may write under its names; a list: its records that are new, where
    others are in the log. `first`: the client's base sequence; `own`: the producer id of the session's slot.
    """
    if any(marks.is_elsewhere(name, own) for name in content.lowest):
        return Next.WAIT  # ids of a name rise in the log: none overtakes what is under way in another slot
    if marks.has_doubts and any(marks.doubtful(name, own) for name in content.lowest):
        return Next.FENCE
    doubts = marks.doubts_of(own) if marks.has_doubts else ()
    if any((doubt.sequence, doubt.marks) == (first, content.marks) for doubt in doubts):
        return Next.SEND  # under the same sequence: Kafka answers whether it was there
    if content.first >= 0 and content.first > marks.pushed(content.marks[0].name):
        return Next.SEND
    if content.last >= 0 and content.last <= marks.persisted(content.marks[0].name):
        kept: list[RecordIds] | None = []
    elif content.takes_long(marks):
        return Next.TAKE_APART
    else:
        kept = content.kept(marks)
    if kept is None:
        return Next.WAIT
    if len(kept) == content.count:
        return Next.SEND
    return Next.FENCE if doubts else kept  # where the session stands is not known: its base cannot move
