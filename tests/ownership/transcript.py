"""Plays a transcript: a text in which events of a topic are followed by what the machine made of them.

A line that begins with `>` is an event, or sets what events are judged by; the lines below it, up to an empty one, are
the answer of `ownership.step`: what follows, and what of the state has changed. `python -m tests.ownership` writes them
anew after a change of the machine; then read the difference.

    > facts mode=exclusive disconnect_grace=3     from here on
    > at 10                                       seconds since the beginning
    > batch pid:1 on 1 mode=wait_for_exclusive    a batch; `claim` behind it: a claim by request
    > taken pid:1 generation=1 on 1               a takeover was committed, for this connection (or `on none`) of the
                                                  owner; `deposes` behind it; `taken nobody`
    > record pid:1 generation=1                   the newest record was read; `record none`, `record none generation=1`

`README.md` explains the words to a reader of the texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from metadata.ownership import AccessMode, Generation
from metadata.ownership import Ownership as RedisOwnership
from sidecar.forwarder.outcome import Outcome
from sidecar.ownership.state import Absent, Awaited, Claimant, Owned, State, Work
from sidecar.ownership.step import (
    BatchOffered,
    Began,
    Begin,
    ClaimEnded,
    ConnectionClosed,
    ConnectionOpened,
    Effect,
    Ended,
    EpochLost,
    Event,
    Facts,
    FoundInRedis,
    Freed,
    Idle,
    Loss,
    PlaceLeft,
    Recorded,
    RecordRead,
    ServedElsewhere,
    SetTimer,
    Settle,
    Settled,
    StopWriting,
    TakenOver,
    TimerFired,
    TookLong,
    Verdict,
    WaitedBefore,
    step,
)  # fmt: skip
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.session import Session
from sidecar.v1 import state_pb2 as records

_ALONE: Final[dict[str, Event]] = {
    "settled": Settled(), "slow": TookLong(), "timer": TimerFired(), "freed": Freed(), "elsewhere": ServedElsewhere(),
}  # fmt: skip


class TranscriptError(ValueError):
    """A line that is no event."""


@dataclass
class Transcript:
    """The topic, what events are judged by, and the time."""

    state: State = field(default_factory=State)
    facts: Facts = field(default_factory=lambda: Facts(reconnect_grace=3.0))
    now: float = 0.0

    def play(self, text: str) -> str:
        """The text with the answers of the machine."""
        return "\n".join(self._lines(text)) + "\n"

    def _lines(self, text: str) -> Iterator[str]:
        is_answer = False
        for line in text.rstrip().splitlines():
            is_answer = is_answer and bool(line) and not line.startswith((">", "#"))
            if is_answer:
                continue
            yield line
            if line.startswith(">"):
                yield from self.tell(line[1:].split())
                is_answer = True

    def tell(self, words: list[str]) -> list[str]:
        """What follows from one line."""
        match words:
            case ["facts", *pairs]:
                self.facts = replace(self.facts, **{name: _value(name, value) for name, value in map(_pair, pairs)})
                return []
            case ["at", seconds]:
                self.now = float(seconds)
                return []
            case ["slot", "of", session, "on", connection]:
                holder = Owned(Session(session), session, AccessMode.SHARED, 0, frozenset({int(connection)}))
                self.state = State(holder, is_beside=True)
                return []
            case _:
                before, effects = self.state, tuple[Effect, ...]()
                for event in _events(words):
                    self.state, more = step(self.state, event, self.facts, self.now)
                    effects += more
                return [*map(_effect, effects), *_changes(before, self.state)]


def _events(words: list[str]) -> list[Event]:  # noqa: C901, PLR0912  a case for each
    match words:
        case ["batch", session, "on", connection, *more]:
            return [BatchOffered(_claimant(session, connection, more), is_claim="claim" in more)]
        case ["opened", connection]:
            return [ConnectionOpened(int(connection))]
        case ["closed", connection]:
            return [ConnectionClosed(int(connection))]
        case ["taken", "nobody"]:
            return [TakenOver(None)]
        case ["taken", "nobody", generation, *more]:
            return [_record_of("", int(_pair(generation)[1]), more), TakenOver(None, "deposes" in more)]
        case ["taken", session, generation, "on", connection, *more]:
            number = int(_pair(generation)[1])
            connections = frozenset({int(connection)} if connection != "none" else ())
            owner = Owned(Session(session), session, AccessMode.EXCLUSIVE, number, connections)
            ends = ClaimEnded(Session(session))
            return [_record_of(session, number, more), TakenOver(owner, "deposes" in more), ends]
        case ["record", "none"]:
            return [RecordRead(None, -1, 0, None)]
        case ["record", "none", generation]:
            return [RecordRead(None, -1, int(_pair(generation)[1]), None)]
        case ["record", session, generation, *more]:
            number = int(_pair(generation)[1])
            return [RecordRead(_record_of(session, number, more).record, number, 0, _in_redis(session, number))]
        case ["redis", session, generation]:
            return [FoundInRedis(_in_redis(session, int(_pair(generation)[1])))]
        case ["waited", *sessions]:
            return [WaitedBefore([*map(Session, sessions)])]
        case ["left", session]:
            return [PlaceLeft(Session(session))]
        case ["began", work]:
            return [Began(Work[work.upper()])]
        case ["ended"]:
            return [Ended()]
        case ["failed", code]:
            return [Ended(Outcome(ErrorCode[code]))]
        case ["lost", loss]:
            return [EpochLost(Loss[loss.upper()])]
        case [name] if name in _ALONE:
            return [_ALONE[name]]
        case _:
            raise TranscriptError(" ".join(words))


def _record_of(session: str, generation: int, more: list[str]) -> Recorded:
    deposed = [records.Deposed(session=word) for word in more if word != "deposes"]
    return Recorded(
        records.Ownership(session=session, name=session, generation=generation, deposed=deposed), generation
    )


def _in_redis(session: str, generation: int) -> RedisOwnership:
    return RedisOwnership("orders", Generation(generation), generation, session, session, AccessMode.EXCLUSIVE)


def _claimant(session: str, connection: str, more: list[str]) -> Claimant:
    said = dict(_pair(word) for word in more if "=" in word)
    mode = AccessMode(said["mode"]) if "mode" in said else None
    generation = int(said["generation"]) if "generation" in said else None
    follows = Session(said["follows"]) if "follows" in said else None
    name = said.get("name", session)
    return Claimant(Session(session), name, "name" in said, int(connection), mode, generation, follows)


def _pair(word: str) -> tuple[str, str]:
    name, _, value = word.partition("=")
    return name, value


def _value(name: str, value: str) -> Any:
    if name == "mode":
        return AccessMode(value)
    if name == "shared":
        return {session: session for session in value.split(",") if session}
    if name in {"queue_limit", "wall_ms"}:
        return int(value)
    return float(value) if name.endswith("grace") else value == "yes"


def _effect(effect: Effect) -> str:
    match effect:
        case Verdict(act, code, message):
            answer = (f": {ErrorCode(code).name}" if code else "") + (f', "{message}"' if message else "")
            return f"  {act.name}{answer}{' (deposes the owner)' if effect.deposes else ''}"
        case Begin(work):
            return f"  begin {work.name}: {work.value}"
        case StopWriting(loss):
            return f"  stop writing: {loss.value}"
        case Settle(refusal):
            answer = None if refusal is None else ErrorCode(refusal.error).name
            return "  judge what waits" if answer is None else f"  answer what waits with {answer}"
        case SetTimer(until):
            return f"  timer at {until:g}"
        case Idle():
            return "  idle"


def _changes(before: State, after: State) -> Iterator[str]:
    was = _shown(before)
    return (f"  {name}: {value}" for name, value in _shown(after).items() if was[name] != value)


def _shown(state: State) -> dict[str, str]:
    holder, owner = state.holder, "nobody"
    if holder is not None:
        owner = f"{holder.session}, generation {holder.generation}"
        owner += "".join(f", on {connection}" for connection in sorted(holder.connections))
        if isinstance(holder, Absent):
            owner += f", {'awaited' if isinstance(holder, Awaited) else 'leaving'} until {holder.until:g}"
    work = "none" if state.work is None else state.work.name + (", slow" if state.is_slow else "")
    return {
        "owner": owner,
        "work": work,
        "waiting": " ".join(state.waiting) or "nobody",
        "refused for good": " ".join(sorted({*state.tries, *state.listed})) or "nobody",
        "marked connections": " ".join(map(str, sorted(state.tainted))) or "none",
        "ghosts": " ".join(map(str, sorted(state.ghosts))) or "none",
    }
