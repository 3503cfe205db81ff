"""The requests for a takeover, one class for each kind. Values only; `takeover` carries them out.

| request | who writes afterwards | the last owner |
|---|---|---|
| `Claim` | a session that owns the topic from now on | is gone |
| `Depose` | the same | loses the topic for ever |
| `Resume` | the owner, under the next epoch | goes on, with its generation |
| `WriteBeside` | a session among others, through its own slot | there is none |
| `Fence` | nobody: an administrator fenced the owner | loses the topic for ever |
| `Adopt` | nobody yet: a fence needs a node that renews it | may come back |
| `Share` | sessions beside each other | is deposed, as others write from now on |
| `Split` | the owner of each partition | owns the whole no longer |

The session of a request is "" if the takeover is for no session. Access modes: PIP-68; fencing: PIP-161.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple
from uuid import UUID

from metadata.ownership import AccessMode
from sidecar.changelog import Position
from sidecar.forwarder.sequences import RefusedSequences
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.ids import Stamp
from sidecar.protocol.session import NO_SESSION, Caller, Session

NOBODY: Final = Session("admin:fence")
"""The session under which an administrator's fence claims: nobody owns the topic afterwards."""


class Memory(NamedTuple):
    """The session's positions on this node, which served it under this epoch of this topic."""

    topic_id: UUID
    stamp: Stamp
    stands_at: Mapping[int, Position]


@dataclass(frozen=True, slots=True)
class Request:
    """Common to all kinds.

    `refused`: the session's sequences that this node refused for good, by partition; they count as used.
    `client_epoch`: its client's, for partitions where none is known. `client`: its address, for people.
    `caller`: the client that the session belongs to; None: as in the newest record of the session.
    `memory`: the session's positions as this node remembers them.
    """

    session: Session = NO_SESSION
    name: str = ""
    mode: AccessMode = AccessMode.EXCLUSIVE
    client: str = ""
    caller: Caller | None = None
    client_epoch: int = 0
    refused: Mapping[int, RefusedSequences] = field(default_factory=dict[int, RefusedSequences])
    memory: Memory | None = None

    deposes: ClassVar[bool] = False
    """The last owner loses the topic for ever."""
    is_for_nobody: ClassVar[bool] = False
    """The topic gets no owner; the right to serve is enough, and Redis arbitrates no claim."""


@dataclass(frozen=True, slots=True)
class Resume(Request):
    """The owner goes on under the next epoch: after a failover, or where the epoch it had was lost."""


@dataclass(frozen=True, slots=True)
class WriteBeside(Request):
    """A session writes beside others, through its own slot."""

    mode: AccessMode = AccessMode.SHARED


@dataclass(frozen=True, slots=True)
class Claim(Request):
    """A session becomes the owner.

    `asked`: the generation that its client asks for. `dismisses`: sessions that write beside each other, and lose the
    topic for ever. `evicts`: sessions that waited or still try, and their last try (Unix ms); they lose it too.
    """

    asked: int | None = None
    dismisses: tuple[str, ...] = ()
    evicts: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class Depose(Claim):
    """As `Claim`; the last owner loses the topic for ever."""

    deposes: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Fence(Request):
    """An administrator takes the topic from its owner; nobody owns it afterwards.

    `generations`: wanted only where the generation is one of these; None: any.
    """

    session: Session = NOBODY
    mode: AccessMode = AccessMode.EXCLUSIVE_WITH_FENCING
    generations: frozenset[int] | None = None

    deposes: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Adopt(Request):
    """A node serves the topic without an owner, so that its fence is renewed. Its last owner may come back."""

    is_for_nobody: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Share(Adopt):
    """Sessions may write beside each other from now on. The last owner is deposed: it could go on otherwise."""

    mode: AccessMode = AccessMode.SHARED


@dataclass(frozen=True, slots=True)
class Split(Adopt):
    """Partitions may have their own owners from now on, or the topic has no policy any more: the last owner of the
    whole owns it no longer.
    """


class NothingDoneError(KafkaError):
    """Another node serves the topic, or no session may take it now. Nothing was begun: the request may be repeated
    here or at that node.
    """
