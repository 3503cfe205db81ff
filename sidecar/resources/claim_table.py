"""The claim table: the owner of each resource, the order of the requests that wait for it, and the transitions. Pure:
no I/O, no clock.

Theory of operation. The state is two tables:

    owners   resource -> claim (session, generation, token, ...)
    waiting  token -> request that waits, in the order of arrival

Resources *overlap* (`waiting.ByResource`): a topic and its partitions, for reading in one group. What holds in every
state:

    I1  Overlapping resources have owners of one session.
    I2  A waiting request is *ready* if no other session owns a resource that overlaps its wishes, and no earlier
        request waits for such a resource. Of two requests that overlap at most one is ready, and the first request of
        all waits only for owners: so there is no deadlock.
    I3  A generation falls only if the resource was free, or if the request asked for generation 0.

Transitions: `judge` decides on a request, `grant` and `release` return a `Change` of the owners, and `apply` applies it
once it is stored. A change touches only the resources that it names and those that overlap with them: changes that do
not overlap may be judged on one state and applied together. `wait` enters a request in the queues of all its resources
at once, `leave` takes it out of all of them.

For one wish the rules of `sidecar.access.rules` hold. Rivals are the owners of overlapping resources of other sessions.
These cases are decided before the rules:

    the token owns it already                  granted as it is
    the token had any of its wishes before     DEPOSED: it had this one, too, and lost it
    the session owns it, or all of its topic,
    and no generation is asked for             granted, same generation

A request is granted if all its wishes are, refused if any is refused, and waits otherwise.
"""

from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from metadata.ownership import AccessMode
from sidecar.access.prospects import Prospect
from sidecar.access.rules import MODES, Answer, decide, next_generation
from sidecar.changelog import Key, Record, whole_of
from sidecar.resources.limits import ClaimLimits
from sidecar.resources.requests import ClaimVerdict, Request, Wish, WishAnswer, gone_message, refuse_all
from sidecar.resources.waiting import ByResource, LostTokens, WaitingRequest, WaitingRequests, count_down, take_out
from sidecar.v1 import control_pb2 as control
from sidecar.v1 import state_pb2 as state

DEPOSED_NAMES: Final = 16
_LOADED_AT_ONCE: Final = 1_000
_NOBODY: Final = state.Claim()
_EXHAUSTED: Final = "it has the highest generation: ask for generation 0, or release it"
_ERRORS: Final = {
    Answer.WAIT: control.TIMED_OUT,
    Answer.HELD: control.HELD,
    Answer.FULL: control.QUEUE_FULL,
    Answer.LOWER: control.LOWER_GENERATION,
}


@dataclass(frozen=True, slots=True)
class Change:
    """The effect of a grant or a release on the owners. `request`: this request no longer waits. `evicts`: all requests
    that wait for resources which overlap with these are deposed too.
    """

    claims: Mapping[Key, state.Claim] = field(default_factory=dict[Key, state.Claim])
    gone: tuple[Key, ...] = ()
    request: Request | None = None
    evicts: tuple[Key, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.claims or self.gone)

    def records(self) -> list[Record]:
        """Return its records. New owners come before tombstones: a reader of the tombstone of a partition's claim then
        already knows the new owner, and can close the connections of the old one.
        """
        return [*[Record(*item) for item in self.claims.items()], *[Record(key, None) for key in self.gone]]


@dataclass(slots=True)
class Effects:
    """The results of a transition. `lost`: claims that other sessions or tokens lost, with their keys; `evicted` and
    `ready`: the waiting requests that were deposed, and those whose turn has come.
    """

    lost: list[tuple[Key, state.Claim]] = field(default_factory=list[tuple[Key, state.Claim]])
    evicted: list[WaitingRequest] = field(default_factory=list["WaitingRequest"])
    ready: list[WaitingRequest] = field(default_factory=list["WaitingRequest"])


class ClaimTable:
    """The owners and the queues."""

    def __init__(self, lost: LostTokens, limits: ClaimLimits) -> None:
        self.owners: ByResource[state.Claim] = ByResource()
        self.waiting = WaitingRequests()
        self._lost = lost
        self._limits = limits
        self._of_session: dict[str, dict[Key, None]] = {}
        self._of_token: dict[bytes, dict[Key, None]] = {}
        self._owned_by: Counter[str] = Counter()
        """The number of claims by principal; only those with claims."""

    # What it knows ------------------------------------------------------------------------------------------------

    def keys_of_session(self, session: str, about: int) -> Collection[Key]:
        """Return about so many keys that a session owns: of each token all or none; empty if it owns nothing."""
        found: dict[Key, None] = {}
        for key in self._of_session.get(session, ()):
            if len(found) >= about:
                break
            if key not in found:
                found.update(self._of_token[self.owners[key].token])
        return found

    def has_anything(self, session: str) -> bool:
        """Return whether a session owns something, or waits for it."""
        return session in self._of_session or bool(self.waiting.of_session(session, 1))

    def is_anothers(self, session: str, principal: str) -> bool:
        """Return whether a session owns something that another principal claimed for it."""
        one = next(iter(self._of_session.get(session, ())), None)
        return one is not None and self.owners[one].principal not in ("", principal)

    def keys_of_token(self, token: bytes) -> set[Key]:
        """Return the keys that a token was granted and still owns."""
        return set(self._of_token.get(token, ()))

    def tokens(self) -> Collection[bytes]:
        """Return the tokens of all owners and of all waiting requests."""
        return dict.fromkeys(self._of_token) | dict.fromkeys(self.waiting.by_token)

    def sessions(self) -> set[str]:
        return set(self._of_session)

    # Judging ------------------------------------------------------------------------------------------------------

    def judge(self, request: Request) -> ClaimVerdict:
        """Return the verdict on a request in this state. Changes nothing."""
        owned, gone = self._of_token.get(request.token, {}), self._lost.of(request.token)
        if owned or any(wish.key in gone for wish in request.wishes):
            kept = owned.keys() - gone
            answers = tuple(self._had(wish, is_owned=wish.key in kept) for wish in request.wishes)
        else:
            answers = tuple(self._judge_wish(request, wish) for wish in request.wishes)
        errors = {answer.error for answer in answers}
        if errors - {control.NONE, control.TIMED_OUT}:
            return ClaimVerdict(Prospect.REFUSED, answers)
        if control.TIMED_OUT in errors:
            fault = self._places_fault(request)
            return refuse_all(request, control.QUEUE_FULL, fault) if fault else ClaimVerdict(Prospect.WAIT, answers)
        claims, principal = [self.owners.get(wish.key) for wish in request.wishes], request.principal
        more = claims.count(None)
        gained = sum(claim is None or claim.principal != principal for claim in claims)
        fault = self._limits.claims_fault(len(self.owners), more, principal, self._owned_by[principal], gained)
        return refuse_all(request, control.QUEUE_FULL, fault) if fault else ClaimVerdict(Prospect.READY, answers)

    def _had(self, wish: Wish, *, is_owned: bool) -> WishAnswer:
        """Return the answer to one wish of a token that was granted before: it cannot claim again what it lost."""
        claim = self.owners.get(wish.key, _NOBODY)
        if is_owned:
            return WishAnswer(generation=claim.generation)
        return WishAnswer(control.DEPOSED, gone_message(claim.name, claim.session, claim.generation))

    def _judge_wish(self, request: Request, wish: Wish) -> WishAnswer:
        """Return the answer to one wish: NONE with the generation it would get, TIMED_OUT if it has to wait."""
        own = self._covering(request.session, wish.key)
        if own is not None and wish.generation is None:
            return WishAnswer(generation=own.generation)
        overlap = [self.owners[key] for key in self.owners.overlapping(wish.key)]
        rivals = [claim for claim in overlap if claim.session != request.session]
        highest = max((claim.generation for claim in rivals), default=own.generation if own is not None else 0)
        in_the_way = overlap if not rivals and wish.generation is not None else rivals
        queue = self.waiting.queue(wish.key)
        answer = decide(
            MODES.get(request.mode, AccessMode.EXCLUSIVE),
            wish.generation,
            highest=highest,
            is_free=not rivals and not self.waiting.is_anybody_ahead(request.token, wish.key),
            has_room=len(queue) < self._limits.queue or request.token in queue,
        )
        if answer is Answer.GRANTED:
            generation = next_generation(highest, wish.generation)
            if generation is not None:
                return WishAnswer(generation=generation)
            return self._refusal(wish, in_the_way, control.HELD, _EXHAUSTED)
        detail = f"asked for {wish.generation}" if answer is Answer.LOWER else ""
        if answer is Answer.FULL:
            detail = f"its queue of {self._limits.queue} is full"
        return self._refusal(wish, in_the_way, _ERRORS[answer], detail)

    def _covering(self, session: str, key: Key) -> state.Claim | None:
        """Return the session's own claim to a resource, or to its whole topic."""
        whole = whole_of(key)
        for one in (key,) if whole is None else (key, whole):
            claim = self.owners.get(one)
            if claim is not None and claim.session == session:
                return claim
        return None

    def has_room_for(self, request: Request) -> bool:
        """Return whether the request has places in the queues, or the limits allow them."""
        return not self._places_fault(request)

    def _places_fault(self, request: Request) -> str:
        waiting, principal = self.waiting, request.principal
        if request.token in waiting.by_token:
            return ""
        more, taken_by = len(request.wishes), waiting.wishes_of[principal]
        return self._limits.places_fault(waiting.wishes, more, principal, taken_by)

    def _refusal(self, wish: Wish, rivals: list[state.Claim], error: control.Error, detail: str = "") -> WishAnswer:
        """Return the answer that names the obstacle: the owner with the highest generation, or the waiting requests."""
        if rivals:
            first = max(rivals, key=lambda claim: claim.generation)
            message = f"{first.name or first.session} owns it (generation {first.generation})"
        else:
            message = f"others wait for it: {len(self.waiting.queue(wish.key)) or 1}"
        return WishAnswer(error, f"{message}; {detail}" if detail else message)

    def grant(self, request: Request, verdict: ClaimVerdict, now_ms: int, client: str) -> Change:
        """Return the change that grants a request, by a verdict on this state; empty if the token owns all wishes.
        `now_ms`: Unix time; `client`: the client's address, for people.
        """
        claims: dict[Key, state.Claim] = {}
        gone: dict[Key, None] = {}
        evicts: list[Key] = []
        for wish, answer in zip(request.wishes, verdict.answers, strict=True):
            before = self.owners.get(wish.key)
            if before is not None and before.token == request.token:
                continue
            rivals = [key for key in self.owners.overlapping(wish.key) if self.owners[key].session != request.session]
            is_own = before is not None and before.session == request.session
            if request.mode == control.EXCLUSIVE_WITH_FENCING and self._covering(request.session, wish.key) is None:
                evicts.append(wish.key)
            gone.update(dict.fromkeys(rivals))
            claims[wish.key] = state.Claim(
                group=wish.group,
                resource=wish.resource,
                generation=answer.generation,
                session=request.session,
                name=request.name,
                mode=request.mode,
                since_ms=before.since_ms if before is not None and is_own else now_ms,
                token=request.token,
                client=client,
                deposed=_deposed_names(before, [self.owners[key] for key in rivals]),
                principal=request.principal,
            )
        return Change(claims, tuple(key for key in gone if key not in claims), request, tuple(evicts))

    def release(self, keys: Iterable[Key]) -> Change:
        """Return the change in which the owners of `keys` release them; leaves out keys without an owner."""
        return Change(gone=tuple(key for key in keys if key in self.owners))

    # Transitions --------------------------------------------------------------------------------------------------

    def load(self, claims: Iterable[tuple[Key, state.Claim]]) -> Generator[None, None, None]:
        """Load the claims of the changelog into an empty table, in slices."""
        for number, (key, claim) in enumerate(claims, 1):
            self._own(key, claim)
            if not number % _LOADED_AT_ONCE:
                yield

    def apply(self, change: Change) -> Effects:
        """Apply a change that is in the log."""
        assert_grant(self, change)
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
        assert_owners(self, change.claims)
        if request is not None:
            touched += self.waiting.remove(request.token)
            for rival in self.waiting.rivals(change.evicts):
                effects.evicted.append(rival)
                touched += self.waiting.remove(rival.token)
        self._settle(touched, effects, sessions)
        return effects

    def wait(self, request: Request, now_ms: int) -> Effects:
        """Enter a request into all of its queues at once; if it is in them already, change nothing."""
        effects = Effects()
        if request.token not in self.waiting.by_token:
            self.waiting.add(request, now_ms)
            self._settle([wish.key for wish in request.wishes], effects)
        return effects

    def leave(self, tokens: Iterable[bytes]) -> Effects:
        """Remove these requests from all queues."""
        effects = Effects()
        touched = [key for token in tokens for key in self.waiting.remove(token)]
        self._settle(touched, effects)
        return effects

    def _settle(self, touched: Iterable[Key], effects: Effects, sessions: Collection[str] = ()) -> None:
        """Find the requests whose turn has come after owners or queues of `touched` changed. `sessions`: those whose
        owned resources changed.
        """
        for waiting in self.waiting.next_in_line(dict.fromkeys(touched), sessions):
            was, waiting.ready = waiting.ready, self.is_ready(waiting)
            if waiting.ready and not was:
                effects.ready.append(waiting)

    def _own(self, key: Key, claim: state.Claim) -> None:
        self.owners[key] = claim
        self._owned_by[claim.principal] += 1
        self._of_session.setdefault(claim.session, {})[key] = None
        self._of_token.setdefault(claim.token, {})[key] = None

    def _free(self, key: Key) -> state.Claim | None:
        claim = self.owners.get(key)
        if claim is not None:
            del self.owners[key]
            count_down(self._owned_by, claim.principal, 1)
            take_out(self._of_session, claim.session, key)
            take_out(self._of_token, claim.token, key)
        return claim

    def is_ready(self, waiting: WaitingRequest) -> bool:
        """Return whether nothing blocks a waiting request any more."""
        wishes = waiting.request.wishes
        if self._is_blocked(waiting, wishes[waiting.blocked]):
            return False
        for number, wish in enumerate(wishes):
            if self._is_blocked(waiting, wish):
                waiting.blocked = number
                return False
        return True

    def _is_blocked(self, waiting: WaitingRequest, wish: Wish) -> bool:
        session = waiting.request.session
        if wish.generation is not None or self._covering(session, wish.key) is not None:
            return False  # is granted or refused at once: other waiting requests do not matter
        if any(self.owners[key].session != session for key in self.owners.overlapping(wish.key)):
            return True
        return self.waiting.is_anybody_ahead(waiting.token, wish.key)


# What always holds: asserted for what a change touches; the simulator looks at whole tables with the same functions.


def assert_owners(table: ClaimTable, keys: Iterable[Key]) -> None:
    """Overlapping resources have owners of one session (I1)."""
    for key in keys:
        claim = table.owners.get(key)
        if claim is not None:
            assert claim.generation > 0, "generations begin at 1"
            for other in table.owners.overlapping(key):
                assert table.owners[other].session == claim.session, f"{other} and {key} have owners of two sessions"


def assert_grant(table: ClaimTable, change: Change) -> None:
    """A generation falls only if the resource was free, or if the request asked for generation 0 (I3)."""
    wishes = () if change.request is None else change.request.wishes
    for wish in wishes:
        claim = change.claims.get(wish.key)
        if claim is not None and wish.generation != 0:
            for key in table.owners.overlapping(wish.key):
                owner = table.owners[key]
                is_rival = owner.session != claim.session
                assert not is_rival or claim.generation > owner.generation, "a rival is deposed by a higher generation"
                assert key != wish.key or claim.generation >= owner.generation, "an owner keeps its generation"


def assert_queues(table: ClaimTable) -> None:
    """A request is ready if and only if nothing blocks it, and the first of all waits only for owners (I2)."""
    waiting = table.waiting
    assert waiting.wishes == sum(len(place.request.wishes) for place in waiting.by_token.values())
    for number, place in enumerate(waiting.by_token.values()):
        assert place.ready == table.is_ready(place), "a place is marked ready when its turn comes"
        for wish in place.request.wishes:
            assert waiting.queue(wish.key)[place.token] is place, "a request has all of its places"
            assert number or not waiting.is_anybody_ahead(place.token, wish.key), "nobody is ahead of the first"


def _deposed_names(before: state.Claim | None, rivals: list[state.Claim]) -> list[str]:
    """Return the names that lost the resource since it was last free, the newest last; at most `DEPOSED_NAMES`."""
    names = list(before.deposed) if before is not None else []
    for rival in rivals:
        names += [*rival.deposed, rival.name]
    newest = dict.fromkeys(name for name in reversed(names) if name)
    return list(newest)[:DEPOSED_NAMES][::-1]
