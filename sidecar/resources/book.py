"""Who owns each resource, who waits for it in which order, and what may follow. Pure: no IO, no clock of its own.

Theory of operation. The state is two tables:

    owners   resource -> claim (session, generation, token, ...)
    places   token -> request that waits, in the order of arrival

Two resources *overlap* where they are the same, or where one is a topic and the other one of its partitions, for
reading in the same group. What holds in every state:

    I1  Overlapping resources have owners of one session.
    I2  A place is *ready* when nobody else owns what overlaps its wishes and no earlier place overlaps them. Of two
        that overlap at most one is ready, and whoever came first of all waits for owners alone: no circle of places.
    I3  A generation falls only where the resource was free, or 0 was asked for.

Transitions: `judge` decides on a request, `grant` and `release` say as a `Change` what they do to the owners, and
`apply` does it once it is written down. A change touches only the resources that it names, and what overlaps with them:
changes that do not overlap may be judged on one state and applied together. `wait` and `leave` take and give up all
places of a request at once.

The rules for one wish, the first that fits (rivals: owners of overlapping resources of other sessions):

    the token owns it already                  granted as it is
    the token owns others of its wishes        DEPOSED: it had this one, too, and lost it
    generation N > 0, below the highest        LOWER_GENERATION
    generation N asked                         granted: 1 if N = 0 or free, else max(highest + 1, N); rivals are deposed
    the session owns it, or all of its topic   granted, same generation
    mode exclusive_with_fencing                granted: highest + 1, or 1 if free; rivals and waiters are deposed
    no rivals, nobody waits ahead              granted: generation 1
    mode wait_for_exclusive                    wait, unless the queue is full (QUEUE_FULL)
    else                                       HELD

A request is granted if all its wishes are, refused if any is refused, and waits otherwise.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from sidecar.changelog import Key
from sidecar.resources.requests import Decision, Verdict, gone_message, whole_of
from sidecar.v1 import control_pb2 as control
from sidecar.v1 import state_pb2 as state

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from sidecar.resources.requests import Request, Wish

NameT = TypeVar("NameT")
MemberT = TypeVar("MemberT")

KEPT_S: Final = 5.0
"""How long a place, and a promotion, is kept for a client that nobody hears of."""
DEPOSED_NAMES: Final = 16
_HIGHEST: Final = 2**63 - 1
_EXHAUSTED: Final = "it has the highest generation: ask for generation 0, or release it"


@dataclass(slots=True)
class Place:
    """A request that waits. Times are monotonic seconds. `attended`: how many calls wait for it right now."""

    request: Request
    number: int
    since_ms: int
    kept_until: float
    attended: int = 0
    ready: bool = False
    blocked: int = 0
    """Which wish was in the way when it was looked at last: the first one to look at again."""

    @property
    def token(self) -> bytes:
        return self.request.token

    def has_lapsed(self, now: float) -> bool:
        """Nobody has asked for it, or fetched what it was promoted to, for too long."""
        return not self.attended and now >= self.kept_until


@dataclass(frozen=True, slots=True)
class Change:
    """What a grant or a release does to the owners. `request`: whose place it ends. `evicts`: whoever waits for what
    overlaps with these is deposed, too.
    """

    claims: Mapping[Key, state.Claim] = field(default_factory=dict[Key, state.Claim])
    gone: tuple[Key, ...] = ()
    request: Request | None = None
    evicts: tuple[Key, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.claims or self.gone)


@dataclass(slots=True)
class Effects:
    """What a transition did: `lost` claims of other sessions or tokens, by their keys; places that were `evicted`, and
    that became `ready`; the resources whose owner or queue `changed`.
    """

    lost: list[tuple[Key, state.Claim]] = field(default_factory=list[tuple[Key, state.Claim]])
    evicted: list[Place] = field(default_factory=list[Place])
    ready: list[Place] = field(default_factory=list[Place])
    changed: dict[Key, None] = field(default_factory=dict[Key, None])


class Book:
    """The owners and the queues. `node` stands in answers as the serving one."""

    def __init__(self, node: int, *, queue_limit: int, claims_limit: int, places_limit: int) -> None:
        """`queue_limit`: places per resource; `claims_limit`, `places_limit`: of everything together."""
        self.owners: dict[Key, state.Claim] = {}
        self.places: dict[bytes, Place] = {}
        self.waiting_wishes = 0
        self._node = node
        self.queue_limit = queue_limit
        self._claims_limit = claims_limit
        self._places_limit = places_limit
        self._arrivals = 0
        self._parts: dict[Key, set[Key]] = {}
        """Owned partitions by their topic."""
        self._of_session: dict[str, set[Key]] = {}
        self._of_token: dict[bytes, set[Key]] = {}
        self._places_of: dict[str, set[bytes]] = {}
        self._queues: dict[Key, OrderedDict[bytes, Place]] = {}
        self._families: dict[Key, dict[Key, None]] = {}
        """Partitions that somebody waits for, by their topic."""

    # What it knows ------------------------------------------------------------------------------------------------

    def overlapping(self, key: Key) -> Iterator[Key]:
        """The owned resources that overlap with one."""
        if key in self.owners:
            yield key
        whole = whole_of(key)
        if whole is None:
            yield from self._parts.get(key, ())
        elif whole in self.owners:
            yield whole

    def keys_of_session(self, session: str) -> set[Key]:
        """What a session owns."""
        return set(self._of_session.get(session, ()))

    def keys_of_token(self, token: bytes) -> set[Key]:
        """What a request was granted and has still."""
        return set(self._of_token.get(token, ()))

    def sessions(self) -> set[str]:
        """Whoever owns anything."""
        return set(self._of_session)

    def places_of(self, session: str) -> list[Place]:
        """The requests of a session that wait."""
        return [self.places[token] for token in self._places_of.get(session, ())]

    def queue(self, key: Key) -> Iterable[Place]:
        """Who waits for exactly this resource, in order."""
        return self._queues.get(key, OrderedDict()).values()

    def queued(self) -> Iterable[Key]:
        """The resources that somebody waits for."""
        return self._queues.keys()

    def ownership(self, key: Key, resource: control.Resource | None = None) -> control.Ownership:
        """What is answered of a resource: its owner, or nobody."""
        claim = self.owners.get(key)
        if claim is None:
            return control.Ownership(resource=resource, serving_node=self._node)
        return shown(claim, self._node)

    # Judging ------------------------------------------------------------------------------------------------------

    def judge(self, request: Request) -> Verdict:
        """What becomes of a request in this state. It changes nothing."""
        fault = self._fault(request)
        if fault is not None:
            return _refuse_all(request, control.INVALID_REQUEST, fault)
        owned = self._of_token.get(request.token, set())
        found = tuple(self._judge_wish(request, wish, owned) for wish in request.wishes)
        if any(answer.error not in (control.NONE, control.TIMED_OUT) for answer in found):
            return Verdict(Decision.REFUSE, found)
        if any(answer.error for answer in found):
            return self._may_wait(request, found)
        more = sum(wish.key not in self.owners for wish in request.wishes)
        if more and len(self.owners) + more > self._claims_limit:
            message = f"{self._claims_limit} resources is the limit of one cluster of nodes; release some"
            return _refuse_all(request, control.QUEUE_FULL, message)
        return Verdict(Decision.GRANT, found)

    def _fault(self, request: Request) -> str | None:
        if request.mode == control.SHARED:
            return "mode SHARED claims nothing: ask for EXCLUSIVE, WAIT_FOR_EXCLUSIVE or EXCLUSIVE_WITH_FENCING"
        if not request.wishes:
            return "the request claims nothing: name a resource"
        if len({wish.key for wish in request.wishes}) < len(request.wishes):
            return "the request names a resource twice: name each once"
        return None

    def _judge_wish(self, request: Request, wish: Wish, owned: set[Key]) -> control.Ownership:
        """The answer to one wish: NONE with the generation it would get, TIMED_OUT where it has to wait."""
        if owned:
            return shown(self.owners[wish.key], self._node) if wish.key in owned else self._lost(wish)
        overlap = [self.owners[key] for key in self.overlapping(wish.key)]
        rivals = [claim for claim in overlap if claim.session != request.session]
        own = self._covering(request.session, wish.key)
        highest = max((claim.generation for claim in rivals), default=own.generation if own is not None else 0)
        if wish.generation is not None:
            if 0 < wish.generation < highest:
                return self._refusal(wish, rivals or overlap, control.LOWER_GENERATION, f"asked for {wish.generation}")
            if not wish.generation or not highest:
                return self._granted(request, wish, 1)
            if highest == _HIGHEST:
                return self._refusal(wish, rivals or overlap, control.HELD, _EXHAUSTED)
            return self._granted(request, wish, max(highest + 1, wish.generation))
        if own is not None:
            return self._granted(request, wish, own.generation)
        if request.mode == control.EXCLUSIVE_WITH_FENCING:
            if highest == _HIGHEST:
                return self._refusal(wish, rivals, control.HELD, _EXHAUSTED)
            return self._granted(request, wish, highest + 1)
        ahead = self._is_anybody_ahead(request.token, wish.key)
        if not rivals and not ahead:
            return self._granted(request, wish, 1)
        if request.mode != control.WAIT_FOR_EXCLUSIVE:
            return self._refusal(wish, rivals, control.HELD)
        queue = self._queues.get(wish.key, ())
        if request.token not in queue and len(queue) >= self.queue_limit:
            return self._refusal(wish, rivals, control.QUEUE_FULL, f"its queue of {self.queue_limit} is full")
        return self._refusal(wish, rivals, control.TIMED_OUT)

    def _covering(self, session: str, key: Key) -> state.Claim | None:
        """The session's own claim to a resource, or to all of its topic."""
        whole = whole_of(key)
        for one in (key,) if whole is None else (key, whole):
            claim = self.owners.get(one)
            if claim is not None and claim.session == session:
                return claim
        return None

    def _may_wait(self, request: Request, found: tuple[control.Ownership, ...]) -> Verdict:
        if not self.has_room_for(request):
            message = f"{self._places_limit} places in queues are kept at most; try again later"
            return _refuse_all(request, control.QUEUE_FULL, message)
        return Verdict(Decision.WAIT, found)

    def has_room_for(self, request: Request) -> bool:
        """Whether places for it can be kept, among those of all others."""
        return request.token in self.places or self.waiting_wishes + len(request.wishes) <= self._places_limit

    def _granted(self, request: Request, wish: Wish, generation: int) -> control.Ownership:
        return control.Ownership(
            resource=wish.resource,
            generation=generation,
            owner_name=request.name,
            owner_session=request.session,
            serving_node=self._node,
        )

    def _lost(self, wish: Wish) -> control.Ownership:
        answer = self.ownership(wish.key, wish.resource)
        answer.error, answer.message = control.DEPOSED, gone_message(answer)
        return answer

    def _refusal(
        self, wish: Wish, rivals: list[state.Claim], error: control.Error, detail: str = ""
    ) -> control.Ownership:
        """Who is in the way: the owner with the highest generation, or those who wait."""
        if not rivals:
            message = f"others wait for it: {len(self._queues.get(wish.key, ())) or 1}"
            answer = control.Ownership(resource=wish.resource, serving_node=self._node)
        else:
            first = max(rivals, key=lambda claim: claim.generation)
            message = f"{label(first)} owns it (generation {first.generation})"
            answer = shown(first, self._node)
            answer.resource.CopyFrom(wish.resource)
        answer.error, answer.message = error, f"{message}; {detail}" if detail else message
        return answer

    def grant(self, request: Request, verdict: Verdict, now_ms: int, client: str) -> Change:
        """What granting does, by a verdict of this state; nothing where the token owns it all. `now_ms`: Unix time;
        `client`: for people. Completes the verdict's times.
        """
        claims: dict[Key, state.Claim] = {}
        gone: dict[Key, None] = {}
        evicts: list[Key] = []
        for wish, answer in zip(request.wishes, verdict.ownerships, strict=True):
            before = self.owners.get(wish.key)
            if before is not None and before.token == request.token:
                continue
            rivals = [key for key in self.overlapping(wish.key) if self.owners[key].session != request.session]
            is_own = before is not None and before.session == request.session
            if request.mode == control.EXCLUSIVE_WITH_FENCING and self._covering(request.session, wish.key) is None:
                evicts.append(wish.key)
            answer.since_ms = before.since_ms if before is not None and is_own else now_ms
            gone.update(dict.fromkeys(rivals))
            claims[wish.key] = state.Claim(
                group=wish.group,
                resource=wish.resource,
                generation=answer.generation,
                session=request.session,
                name=request.name,
                mode=request.mode,
                since_ms=answer.since_ms,
                token=request.token,
                client=client,
                deposed=_deposed_names(before, [self.owners[key] for key in rivals]),
            )
        return Change(claims, tuple(key for key in gone if key not in claims), request, tuple(evicts))

    def release(self, keys: Iterable[Key]) -> Change:
        """Their owners let go of these; those that nobody owns are left out."""
        return Change(gone=tuple(key for key in keys if key in self.owners))

    # Transitions --------------------------------------------------------------------------------------------------

    def load(self, claims: Iterable[tuple[Key, state.Claim]]) -> None:
        """Begin with what the changelog says."""
        for key, claim in claims:
            self._own(key, claim)

    def apply(self, change: Change, now: float) -> Effects:
        """A change is written down: do it."""
        effects = Effects()
        request = change.request
        touched = [*change.gone, *change.claims]
        sessions: set[str] = set() if request is None else {request.session}
        for key in touched:
            claim = self._free(key)
            after = change.claims.get(key)
            if claim is not None:
                sessions.add(claim.session)
                if after is None or after.token != claim.token:
                    effects.lost.append((key, claim))
        for key, claim in change.claims.items():
            self._own(key, claim)
        if request is not None:
            touched += self._end(request.token)
            for place in self._waiting_for(change.evicts):
                effects.evicted.append(place)
                touched += self._end(place.token)
        self._settle(touched, now, effects, sessions)
        return effects

    def wait(self, request: Request, now: float, now_ms: int) -> tuple[Place, Effects]:
        """Take a place in every queue of the request at the same moment, or keep those it has."""
        effects, place = Effects(), self.places.get(request.token)
        if place is None:
            self._arrivals += 1
            place = Place(request, self._arrivals, now_ms, now + KEPT_S)
            self.places[request.token] = place
            self._places_of.setdefault(request.session, set()).add(request.token)
            self.waiting_wishes += len(request.wishes)
            for wish in request.wishes:
                self._queues.setdefault(wish.key, OrderedDict())[request.token] = place
                whole = whole_of(wish.key)
                if whole is not None:
                    self._families.setdefault(whole, {})[wish.key] = None
            self._settle([wish.key for wish in request.wishes], now, effects)
        self.keep(place, now)
        return place, effects

    def keep(self, place: Place, now: float) -> None:
        """Somebody asked for a place."""
        place.kept_until = max(place.kept_until, now + KEPT_S)

    def leave(self, tokens: Iterable[bytes], now: float) -> Effects:
        """Give up all places of these requests."""
        effects = Effects()
        touched: list[Key] = []
        for token in tokens:
            touched += self._end(token)
        self._settle(touched, now, effects)
        return effects

    def lapsed(self, now: float) -> list[bytes]:
        """The requests whose places nobody keeps any more."""
        return [token for token, place in self.places.items() if place.has_lapsed(now)]

    def _own(self, key: Key, claim: state.Claim) -> None:
        self.owners[key] = claim
        self._of_session.setdefault(claim.session, set()).add(key)
        self._of_token.setdefault(claim.token, set()).add(key)
        whole = whole_of(key)
        if whole is not None:
            self._parts.setdefault(whole, set()).add(key)

    def _free(self, key: Key) -> state.Claim | None:
        claim = self.owners.pop(key, None)
        if claim is not None:
            _discard(self._of_session, claim.session, key)
            _discard(self._of_token, claim.token, key)
            whole = whole_of(key)
            if whole is not None:
                _discard(self._parts, whole, key)
        return claim

    def _end(self, token: bytes) -> list[Key]:
        """A request waits no longer; the queues that it was in."""
        place = self.places.pop(token, None)
        if place is None:
            return []
        keys = [wish.key for wish in place.request.wishes]
        _discard(self._places_of, place.request.session, token)
        self.waiting_wishes -= len(keys)
        for key in keys:
            queue = self._queues[key]
            del queue[token]
            if not queue:
                del self._queues[key]
                whole = whole_of(key)
                if whole is not None:
                    family = self._families[whole]
                    del family[key]
                    if not family:
                        del self._families[whole]
        return keys

    # Queues -------------------------------------------------------------------------------------------------------

    def _overlapping_queues(self, key: Key) -> Iterator[OrderedDict[bytes, Place]]:
        """The queues for what overlaps with a resource."""
        whole = whole_of(key)
        near = (key, whole) if whole is not None else (key, *self._families.get(key, ()))
        for one in near:
            queue = self._queues.get(one)
            if queue is not None:
                yield queue

    def _is_anybody_ahead(self, token: bytes, key: Key) -> bool:
        """Whether another request waits for what overlaps, and came before this one."""
        place = self.places.get(token)
        for queue in self._overlapping_queues(key):
            first = next(iter(queue.values()))
            if first is not place and (place is None or first.number < place.number):
                return True
        return False

    def _waiting_for(self, keys: Iterable[Key]) -> Collection[Place]:
        """Whoever waits for what overlaps with any of these."""
        queues = (queue for key in keys for queue in self._overlapping_queues(key))
        return {place.token: place for queue in queues for place in queue.values()}.values()

    def _settle(self, touched: Iterable[Key], now: float, effects: Effects, sessions: Collection[str] = ()) -> None:
        """Owners or queues of these resources changed: whose turn is it now? `sessions`: they own more or less now, and
        need not stand in line for what they own.
        """
        effects.changed.update(dict.fromkeys(touched))
        found: dict[bytes, Place] = {}
        for key in effects.changed:
            for queue in self._overlapping_queues(key):
                first = next(iter(queue.values()))
                found[first.token] = first
                for session in sessions:
                    tokens = self._places_of.get(session, ())
                    fewer, more = (tokens, queue) if len(tokens) < len(queue) else (queue, tokens)
                    found.update({token: queue[token] for token in fewer if token in more})
        for place in sorted(found.values(), key=lambda each: each.number):
            was, place.ready = place.ready, self.is_ready(place)
            if place.ready and not was:
                self.keep(place, now)
                effects.ready.append(place)

    def is_ready(self, place: Place) -> bool:
        """Whether nothing is in the way of a waiting request any more."""
        wishes = place.request.wishes
        if self._is_blocked(place, wishes[place.blocked]):
            return False
        for number, wish in enumerate(wishes):
            if self._is_blocked(place, wish):
                place.blocked = number
                return False
        return True

    def _is_blocked(self, place: Place, wish: Wish) -> bool:
        session = place.request.session
        if wish.generation is not None or self._covering(session, wish.key) is not None:
            return False  # granted or refused, whoever waits
        if any(self.owners[key].session != session for key in self.overlapping(wish.key)):
            return True
        return self._is_anybody_ahead(place.token, wish.key)


def shown(claim: state.Claim, node: int) -> control.Ownership:
    """A claim as clients are told of it."""
    return control.Ownership(
        resource=claim.resource,
        generation=claim.generation,
        owner_name=claim.name,
        owner_session=claim.session,
        serving_node=node,
        since_ms=claim.since_ms,
    )


def label(claim: state.Claim) -> str:
    """An owner's name, or its session."""
    return claim.name or claim.session


def _deposed_names(before: state.Claim | None, rivals: list[state.Claim]) -> list[str]:
    """The names that lost the resource while it was held, the newest last."""
    names = list(before.deposed) if before is not None else []
    for rival in rivals:
        names += [*rival.deposed, rival.name]
    newest = dict.fromkeys(name for name in reversed(names) if name)
    return list(newest)[:DEPOSED_NAMES][::-1]


def _refuse_all(request: Request, error: control.Error, message: str) -> Verdict:
    answers = [control.Ownership(resource=wish.resource, error=error, message=message) for wish in request.wishes]
    return Verdict(Decision.REFUSE, tuple(answers))


def _discard(index: dict[NameT, set[MemberT]], name: NameT, member: MemberT) -> None:
    """Take a member out of a set of an index, and the set when it is empty."""
    members = index.get(name)
    if members is not None:
        members.discard(member)
        if not members:
            del index[name]
