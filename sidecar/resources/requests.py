"""What is asked of the coordinator and what it answers, as values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol
from urllib.parse import unquote

from sidecar.changelog import Key, Kind
from sidecar.v1 import control_pb2 as control

_READER_PARTS: Final = 4
CONNECTION_SESSION: Final = "conn:"
"""How the sessions begin that end with their connection."""


@dataclass(frozen=True, slots=True)
class Wish:
    """One claim of a request. `key` is `claim_key(group, resource)`; `generation` None: the mode decides."""

    key: Key
    group: str
    resource: control.Resource
    generation: int | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """A set of claims, all or nothing. The same `token` again is the same request. `session`: whose they are to be."""

    token: bytes
    session: str
    name: str
    mode: control.AccessMode
    wishes: tuple[Wish, ...]


class Asker(Protocol):
    """A client connection. `address` is for people: where it is and what it runs."""

    @property
    def session(self) -> str: ...
    @property
    def connection_id(self) -> int: ...
    @property
    def address(self) -> str: ...
    def is_alive(self) -> bool: ...
    def sever(self) -> None:
        """Close the connection, whatever is under way on it."""


class Decision(Enum):
    """What is to be done with a request now."""

    GRANT = "everything it asks for can be had, or is its own already: `take` it"
    WAIT = "it has to wait, and may: take places for it"
    REFUSE = "the answer is in the ownerships"
    BUSY = "this node coordinates nothing now: `ready` first"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision, and one ownership per wish in their order: what would be granted, or who holds it and the error."""

    decision: Decision
    ownerships: tuple[control.Ownership, ...] = ()


def whole_of(key: Key) -> Key | None:
    """The key of the whole topic where `key` is one of its partitions' for reading; None for any other."""
    parts = key.topic.split(":")
    return Key(Kind.CLAIM, ":".join(parts[:3])) if len(parts) == _READER_PARTS else None


def resource_of(key: Key) -> control.Resource:
    """What a key of `claim_key` stands for."""
    parts = [unquote(part) for part in key.topic.split(":")]
    if parts[-2] == "name" and len(parts) < _READER_PARTS:
        return control.Resource(name=parts[-1])
    return control.Resource(topic=parts[2], partition=int(parts[3]) if len(parts) == _READER_PARTS else None)


def gone_message(now: control.Ownership) -> str:
    """For who lost or released a claim: who has it since, and what to do."""
    owner = f"{now.owner_name} owns it" if now.owner_session else "nobody owns it"
    return f"{owner} now (generation {now.generation}); this claim was lost or released: claim with a new token"
