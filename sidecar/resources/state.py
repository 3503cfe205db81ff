"""What a node knows of free strings and reader claims: the coordinator by its claim table, others by the changelog.

The two modules above share this state: `lease` changes who coordinates, `coordinator` changes the claims. The state
itself only answers questions and calls its listeners.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import InitVar, dataclass, field
from typing import Final, Protocol, TypeAlias

from sidecar.access.services import NodeServices
from sidecar.changelog import Key, claimed
from sidecar.cluster.nodes import NodeDirectory
from sidecar.network.tasks import Tasks
from sidecar.resources.claim_table import ClaimTable, Effects
from sidecar.resources.commits import Commits
from sidecar.resources.epoch import CLAIMS, CoordinatorEpoch, fencing_token
from sidecar.resources.limits import ClaimLimits
from sidecar.resources.requests import shown
from sidecar.resources.sessions import Sessions
from sidecar.resources.waiting import LostTokens
from sidecar.v1 import control_pb2 as control
from sidecar.v1 import state_pb2 as state

_NAME: Final = CLAIMS.encode()
Listener: TypeAlias = Callable[[bytes, Collection[Key]], None]


class ClaimEvents(Protocol):
    """Events of claims, for metrics and logs."""

    def claims_answered(self, outcome: str, resources: int) -> None:
        """`outcome`: granted, released, lost, ended, or the name of an error in lower case."""

    def claims_granted(self, resource: str, resources: int, generation: int, session: str, deposed: str | None) -> None:
        """A request was granted: its first resource, their number, its session, and one deposed session, if any."""

    def claims_let_go(self, resource: str, resources: int, session: str) -> None: ...
    def coordinator_changed(self, coordinates: bool, claims: int, reason: str) -> None: ...
    def claims_failed(self, error: BaseException) -> None: ...


@dataclass(eq=False)
class ClaimsState:
    """The claims as one node sees them. Times in seconds.

    `listeners` are called with every token that has news: its turn has come, it lost claims (their keys) or its places,
    or this node no longer coordinates. `over`: sessions that ended but still own something, and whether their release
    is being written.
    """

    services: NodeServices
    nodes: NodeDirectory
    tasks: Tasks
    events: ClaimEvents
    reconnect_grace: float
    disconnect_grace: InitVar[float]
    limits: ClaimLimits
    listeners: list[Listener] = field(init=False, default_factory=list[Listener])
    lost: LostTokens = field(init=False, default_factory=LostTokens)
    over: dict[str, bool] = field(init=False, default_factory=dict[str, bool])
    serving: bool = False
    draining: bool = False
    epoch: CoordinatorEpoch | None = None
    commits: Commits | None = None

    def __post_init__(self, disconnect_grace: float) -> None:
        self.sessions = Sessions(disconnect_grace)
        self.table = self.new_table()

    # The coordinator ----------------------------------------------------------------------------------------------

    @property
    def coordinates(self) -> bool:
        """Whether this node coordinates."""
        return self.epoch is not None

    @property
    def node(self) -> int | None:
        """The node that coordinates or should; None if that is this node and it is shutting down."""
        if self.epoch is not None:
            return self.services.node_id
        placement = self.nodes.placement
        serving = self.nodes.serving.get(_NAME)
        found = serving if serving in placement.nodes else placement.of_topic(_NAME)
        return None if self.draining and found == self.services.node_id else found

    def new_table(self) -> ClaimTable:
        return ClaimTable(self.services.node_id, self.lost, self.limits)

    def limit(self, *, disconnect_grace: float, queue_limit: int, principal_limit: int) -> None:
        """Change the limits; owners keep what they own, requests that already wait stay in their queues."""
        self.sessions.disconnect_grace = disconnect_grace
        self.limits.queue, self.limits.of_principal = queue_limit, principal_limit

    def now(self) -> float:
        return self.services.changelog.clock.elapsed()

    def wall_ms(self) -> int:
        return self.services.changelog.clock.now_ms()

    # What happens ---------------------------------------------------------------------------------------------------

    def happened(self, effects: Effects) -> None:
        """Record the effects of a change, and notify the listeners of the tokens concerned."""
        news: dict[bytes, list[Key]] = {}
        for key, claim in effects.lost:
            news.setdefault(claim.token, []).append(key)
        for token, keys in news.items():
            self.lost.add(token, keys)
        for waiting in effects.evicted:
            self.lost.add(waiting.token, [wish.key for wish in waiting.request.wishes])
        for waiting in (*effects.evicted, *effects.ready):
            news.setdefault(waiting.token, [])
        self.notify(news)

    def notify(self, news: Mapping[bytes, Collection[Key]]) -> None:
        """Call the listeners with each of these tokens."""
        for listener in self.listeners:
            for token, keys in news.items():
                listener(token, keys)

    # Looking ------------------------------------------------------------------------------------------------------

    def describe(self, keys: Collection[Key]) -> tuple[tuple[control.Ownership, ...], tuple[control.Waiting, ...]]:
        """Return the owners of these resources, and their queues in order.

        Any node knows the owners; only the coordinator knows the queue.
        """
        waiting = tuple(
            control.Waiting(
                resource=claimed(key)[1], name=each.request.name, session=each.request.session, since_ms=each.since_ms
            )
            for key in keys
            for each in self.table.waiting.queue(key).values()
        )
        return self.owners(keys), waiting

    def claimed(self, group: str) -> list[Key]:
        """Return the resources of a group ("": free strings) that are owned or, on the coordinator, waited for."""
        if self.epoch is not None:
            owners: Iterable[tuple[Key, state.Claim]] = self.table.owners.items()
        else:
            owners = ((each.key, each.value) for each in self.services.changelog.view.claims())
        found = dict.fromkeys(key for key, claim in owners if claim.group == group)
        found.update(dict.fromkeys(key for key in self.table.waiting.queued() if claimed(key)[0] == group))
        return list(found)

    def owners(self, keys: Collection[Key]) -> tuple[control.Ownership, ...]:
        """Return the owners of these resources, in order: the coordinator's by its table, others' by the changelog."""
        node = -1 if self.node is None else self.node
        view = self.services.changelog.view
        serving = view.serving(CLAIMS)
        found: list[control.Ownership] = []
        for key in keys:
            entry = view.claim(key)
            claim = self.table.owners.get(key) if self.epoch is not None or entry is None else entry.value
            if claim is None:
                found.append(control.Ownership(resource=claimed(key)[1], serving_node=node))
                continue
            found.append(shown(claim, node))
            if entry is not None and entry.value.token == claim.token:
                found[-1].fencing_token = fencing_token(entry, serving)
        return tuple(found)

    def is_held(self, key: Key, token: bytes, generation: int) -> bool:
        """Return whether this node coordinates, and the token owns a resource in this generation."""
        claim = self.table.owners.get(key)
        return self.epoch is not None and claim is not None and (claim.token, claim.generation) == (token, generation)

    @property
    def held(self) -> int:
        """The number of owned resources, on the coordinator."""
        return len(self.table.owners)

    @property
    def waiting_wishes(self) -> int:
        """The number of places taken in queues, on the coordinator."""
        return self.table.waiting.wishes
