"""Plays a transcript of claims to free strings and readers: events, and what `resources.claims` makes of them. The
coordinator's part is played here: what is to be appended is in the log at once.

A line that begins with `>` is an event; the lines below it are what follows. A resource is a string (`leader`), or a
topic or partition for the readers of a group (`billing:orders`, `billing:orders/0`); `=3` behind it asks for a
generation. `python -m tests.ownership` writes the answers anew after a change of the machine; then read the difference.

    > ask A pid:1 on 1 wait leader billing:orders=3    a request with the token A; exclusive without a mode
    > release A leader                                 of its claims those named, without any all
    > closed 1                                         a client's connection
    > at 10                                            seconds since the beginning; graces end
    > moved                                            another node coordinates, then this one, 3 s for sessions
    > commit billing:orders/0 on 1                     may this connection commit, and fetch?
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sidecar.access.prospects import Prospect
from sidecar.changelog import Change as LogChange
from sidecar.changelog import Entry, Key, claimed
from sidecar.protocol.ids import Offset, ProducerEpoch, ProducerId, Stamp
from sidecar.resources.claim_table import Change
from sidecar.resources.claims import Claim, Claims, End, Intent, News, Release, Sever
from sidecar.resources.limits import ClaimLimits
from sidecar.resources.readers import HandOver, Reader, ReaderClaims
from sidecar.resources.requests import Request, Wish
from sidecar.v1 import control_pb2 as control

_MODES: Final = {"wait": control.WAIT_FOR_EXCLUSIVE, "fence": control.EXCLUSIVE_WITH_FENCING}
_STAMP: Final = Stamp(ProducerId(1), ProducerEpoch(0))


@dataclass
class Connection:
    """A client's connection."""

    connection_id: int
    bound_sessions: set[str] = field(default_factory=set[str])
    is_open: bool = True

    @property
    def reader(self) -> Reader:
        return Reader(f"conn:{self.connection_id}", "", self.bound_sessions)


class ClaimTranscript:
    """The claims, those who read under them, and the time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.claims = Claims(ClaimLimits(100), disconnect_grace=3.0)
        self.readers = ReaderClaims(lambda _: True)
        self._connections: dict[str, Connection] = {}
        self._lines: list[str] = []

    def play(self, text: str) -> str:
        """The text with the answers of the machine."""
        said = [line for line in text.splitlines() if not line.startswith("  ")]
        return "\n".join(line for told in said for line in self._told(told)) + "\n"

    def _told(self, line: str) -> list[str]:
        self._lines = [line]
        if line.startswith(">"):
            self._tell(line[1:].split())
        return self._lines

    def _tell(self, words: list[str]) -> None:
        match words:
            case ["ask", token, session, "on", number, *more]:
                mode = _MODES.get(more[0], control.EXCLUSIVE)
                wishes = tuple(_wish(word) for word in more if word not in _MODES)
                self._ask(self._connection(number), Request(token.encode(), session, session, mode, wishes))
            case ["release", token, *names]:
                self._carry_out(Release(token.encode(), [_wish(name).key for name in names] or None))
            case ["closed", number]:
                self._connection(number).is_open = False
                self._end(self.claims.closed(int(number), self.now))
            case ["at", seconds]:
                self.now = float(seconds)
                self._end(self.claims.time_passed(self.now))
            case ["moved"]:
                former = self.claims.lost_right()
                for token in former.tokens():
                    self._news(token, former.keys_of_token(token))
                table = self.claims.new_table()
                for _ in table.load(former.owners.items()):
                    ...
                self.claims.opened(table, self.now + 3.0)
            case ["commit", name, "on", number]:
                group, resource = claimed(_wish(name).key)
                topic, partition, reader = resource.topic.encode(), resource.partition, self._connection(number).reader
                may_commit = self.readers.may_commit(group, topic, partition, reader)
                may_fetch = self.readers.may_fetch(topic, partition, reader)
                self._say(f"commits: {'yes' if may_commit else 'no'}, fetches: {'yes' if may_fetch else 'no'}")
            case _:
                raise ValueError(" ".join(words))

    def _ask(self, asker: Connection, request: Request) -> None:
        verdict = self.claims.look(request, 0)
        if verdict.prospect is Prospect.READY:
            asker.bound_sessions.add(request.session)
            self.claims.sessions.bind(asker.connection_id, request.session)
            self._carry_out(claim := Claim(request, asker.connection_id, ""))
            verdict = claim.verdict
        if verdict.prospect is Prospect.WAIT:
            self._say("waits, with a place in every queue")
            self.claims.sessions.bind(asker.connection_id, request.session)
            self.claims.waits(request, 0)
            self._hear()
            return
        for wish, answer in zip(request.wishes, verdict.answers, strict=True):
            error = f"{control.Error.Name(answer.error)}, {answer.message}"
            self._say(f"{wish}: {error if answer.error else f'owned, generation {answer.generation}'}")

    def _carry_out(self, intent: Intent) -> None:
        change = self.claims.decide(intent, 0)
        self._hear()
        if change:
            self._log(change)
            follows = self.claims.stored(intent, change)
            self._hear()
            self._end(follows.ends)

    def _end(self, ends: list[End]) -> None:
        for end in ends:
            self._say(f"{end.session} has ended")
            self._carry_out(end)
            assert not self.claims.ended(end, failed=False), "a transcript's sessions end at once"

    def _log(self, change: Change) -> None:
        changes: Mapping[Key, Any] = {**change.claims, **dict.fromkeys(sorted(change.gone, key=_name))}
        for key, claim in changes.items():
            owner = self.claims.table.owners.get(key)
            self._say(f"append {_name(key)}: {claim.session if claim else 'nobody'}")
            for passed in self.readers.changed(LogChange(key, _entry(key, owner), _entry(key, claim))).handed_over:
                self._handed_over(passed)

    def _hear(self) -> None:
        while not self.claims.events.empty():
            match self.claims.events.get_nowait():
                case News(token, lost):
                    self._news(token, lost)
                case Sever(connection):
                    self._say(f"close connection {connection}")

    def _news(self, token: bytes, keys: Collection[Key]) -> None:
        lost = " ".join(sorted(map(_name, keys)))
        place = self.claims.table.waiting.by_token.get(token)
        turn = "it is its turn" if place is not None and place.ready else "it has lost its place"
        self._say(f"news for {token.decode()}: {f'it has lost {lost}' if lost else turn}")

    def _handed_over(self, change: HandOver) -> None:
        closed = [
            str(one.connection_id) for one in self._connections.values() if change.severs(one.reader) and one.is_open
        ]
        self._say(f"every node closes the reader's connections: {' '.join(closed) or 'none'}")

    def _connection(self, number: str) -> Connection:
        return self._connections.setdefault(number, Connection(int(number)))

    def _say(self, text: str) -> None:
        self._lines.append(f"  {text}")


def _wish(word: str) -> Wish:
    name, _, generation = word.partition("=")
    group, is_read, what = name.rpartition(":")
    topic, _, partition = what.partition("/")
    resource = control.Resource(name=name)
    if is_read:
        resource = control.Resource(topic=topic, partition=int(partition) if partition else None)
    return Wish.of(group, resource, int(generation) if generation else None)


def _name(key: Key) -> str:
    group, resource = claimed(key)
    part = f"/{resource.partition}" if resource.HasField("partition") else ""
    return resource.name or f"{group}:{resource.topic}{part}"


def _entry(key: Key, claim: Any) -> Any:
    return None if claim is None else Entry(key, claim, _STAMP, Offset(0), 0)
