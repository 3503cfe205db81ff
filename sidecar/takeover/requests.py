"""The requests for a takeover. Values only; `takeover` carries them out.

| purpose | who writes afterwards | the last owner |
|---|---|---|
| `CLAIM` | a session that owns the topic from now on | left |
| `CLAIM` that deposes | the same | loses the topic for ever |
| `RESUME` | the owner, under the next epoch | continues, with its generation |
| `WRITE_BESIDE` | a session among others, through its own slot | there is none |
| `FENCE` | nobody: an administrator fenced the owner | loses the topic for ever |
| `ADOPT` | nobody yet: a fence needs a node that renews it | may come back |
| `SHARE` | sessions beside each other | is deposed, as others write from now on |
| `SPLIT` | the owner of each partition | does not own the whole any more |

The session of a request is "" if the takeover is for no session. Access modes: PIP-68; fencing: PIP-161.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple
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


class Purpose(Enum):
    """What a takeover is for."""

    CLAIM = "a session becomes the owner"
    RESUME = "the owner goes on under the next epoch: after a failover, or where the epoch it had was lost"
    WRITE_BESIDE = "a session writes beside others, through its own slot"
    FENCE = "an administrator takes the topic from its owner; nobody owns it afterwards"
    ADOPT = "a node serves the topic without an owner, so that its fence is renewed; its last owner may come back"
    SHARE = "sessions may write beside each other; the last owner is deposed: it could go on otherwise"
    SPLIT = "partitions may have their own owners, or the policy is gone: the last owner of the whole owns it no longer"


FOR_NOBODY: Final = frozenset({Purpose.ADOPT, Purpose.SHARE, Purpose.SPLIT})
"""The topic gets no owner; the right to serve is enough, and Redis arbitrates no claim."""


@dataclass(frozen=True, slots=True)
class Request:
    """The request for a takeover.

    `refused`: the session's sequences that this node refused for good, by partition; they count as used.
    `client_epoch`: its client's, for partitions where none is known. `client`: its address, for display.
    `caller`: the client that the session belongs to; None: as in the newest record of the session.
    `memory`: the session's positions as this node remembers them. `deposes`: the last owner loses the topic for ever.

    For a claim: `asked`: the generation that its client requests. `dismisses`: sessions that write beside each other,
    and lose the topic for ever. `evicts`: sessions that waited or still try, and their last try (Unix ms); they lose it
    too. For a fence: `generations`: it is done only if the generation is one of these; None: any.
    """

    purpose: Purpose
    session: Session = NO_SESSION
    name: str = ""
    mode: AccessMode = AccessMode.EXCLUSIVE
    client: str = ""
    caller: Caller | None = None
    client_epoch: int = 0
    refused: Mapping[int, RefusedSequences] = field(default_factory=dict[int, RefusedSequences])
    memory: Memory | None = None
    deposes: bool = False
    asked: int | None = None
    dismisses: tuple[str, ...] = ()
    evicts: Mapping[str, int] = field(default_factory=dict[str, int])
    generations: frozenset[int] | None = None


class NothingDoneError(KafkaError):
    """Another node serves the topic, or no session may take it now. Nothing was begun: the request may be repeated
    here or at that node.
    """
