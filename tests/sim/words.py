"""What operators say of policies and shadows, and what holds of it in the end.

Of each field of a record the last word that was acknowledged holds, or one that was said beside it or later. A word
ends where its operator gets an answer, gives up, or asked a node that dies: nothing of it comes behind a later one. So
late records of a dead or suspended node show, and changes that one of two nodes loses.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sidecar.node import port
from sidecar.policy.policies import PolicyFields
from sidecar.v1 import state_pb2 as state
from tests.sim.world import TOPICS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

    from tests.sim.host import Host
    from tests.sim.world import World

Fields = dict[str, Any]
_POLICY: Final = tuple(asdict(PolicyFields()))
_SHADOW: Final = ("source", "allow", "limit")
_EVERYBODY: Final = ("User:*",)
_NOTHING_DONE: Final = (
    port.NotFoundError, port.ConflictError, port.GenerationError, port.InvalidError, port.NothingDoneError,
)  # fmt: skip
_CLIENTS: Final = "shared"
"""The mode of the policy that a client makes by asking for one."""


def no_policy() -> Fields:
    """A policy that was deleted."""
    return dict.fromkeys(_POLICY)


def no_shadow() -> Fields:
    """A shadow that is none."""
    return dict.fromkeys(_SHADOW)


def policy_fields(change: Any) -> Fields:
    """What a change of a policy says."""
    return {name: str(value) for name, value in asdict(change).items() if value is not None}


def shadow_fields(source: str | None, allow: Iterable[str] | None, limit: int | None) -> Fields:
    """What is said of a shadow; None: nothing."""
    found = {"source": source, "allow": None if allow is None else tuple(allow), "limit": limit}
    return {name: value for name, value in found.items() if value is not None}


def initial_words() -> dict[str, Fields]:
    """What holds as a history begins."""
    found: dict[str, Fields] = {}
    for name, plan in TOPICS.items():
        if plan.policy is not None:
            found[f"policy/{name}"] = policy_fields(plan.policy)
        if plan.shadow_of:
            found[f"shadow/{name}"] = shadow_fields(plan.shadow_of, _EVERYBODY, 0)
    return found


@dataclass(slots=True)
class Word:
    """A change of the record `key` (`policy/NAME`, `shadow/NAME`). `says`: the values that it may leave in each field
    that it names; one each where it is `done`.
    """

    key: str
    says: tuple[Fields, ...]
    began: float = 0.0
    ended: float = math.inf
    done: bool = False
    host: Host | None = None

    @property
    def over(self) -> float:
        """When nothing of it could happen any more."""
        return min(self.ended, math.inf if self.host is None else self.host.died_at)


@dataclass(slots=True)
class Words:
    """All of a history. `unsaid`: keys of which others than operators had a say: nodes forget a shadow without its
    topic. `lost`: Kafka lost records of the ownership topic, so any word may be undone.
    """

    now: Callable[[], float] = lambda: 0.0
    """The world's time: a suspended node's own stands still."""
    said: list[Word] = field(default_factory=list)
    unsaid: set[str] = field(default_factory=set)
    lost: bool = False
    initial: dict[str, Fields] = field(default_factory=dict)

    async def during(self, host: Host, key: str, says: Fields, work: Awaitable[Any], *, makes: bool = False) -> None:
        """Have a node carry out a change. `makes`: where it fails, nothing may be there any more."""
        nothing = dict.fromkeys(says)
        word = Word(key, (says, nothing) if makes else (says,), self.now(), host=host)
        self.said.append(word)
        try:
            await work
        except _NOTHING_DONE:
            self.said.remove(word)
            raise
        except BaseException:
            word.ended = self.now()
            raise
        word.ended, word.done, word.says = self.now(), True, (says,)


def judge(words: Words, holds: Mapping[str, Fields]) -> Iterator[str]:
    """What holds in the end against what was said."""
    by_key: dict[str, list[Word]] = {}
    for word in words.said:
        by_key.setdefault(word.key, []).append(word)
    for key, said in sorted(by_key.items()):
        if key in words.unsaid or words.lost:
            continue
        for name, value in holds[key].items():
            about = [word for word in said if any(name in each for each in word.says)]
            done = [word for word in about if word.done]
            may_be = [] if done else [words.initial.get(key, {}).get(name)]
            for word in about:
                if not any(other.began > word.over for other in done):
                    may_be += [each[name] for each in word.says if name in each]
            is_clients = name == "access_mode" and value == _CLIENTS and None in may_be
            if value not in may_be and not is_clients:
                yield f"{name} of {key} is {value} in the end, and was said to be one of {may_be}"


# What holds -----------------------------------------------------------------------------------------------------------


def of_record(key: str, value: bytes | None) -> Fields:
    """The fields of a policy's or shadow's record."""
    is_policy = key.startswith("policy/")
    if not value:
        return no_policy() if is_policy else no_shadow()
    if is_policy:
        return {**no_policy(), **policy_fields(PolicyFields.of_record(state.Policy.FromString(value)))}
    shadow = state.Shadow.FromString(value)
    return {"source": shadow.source, "allow": tuple(shadow.allow), "limit": shadow.auto_reset_backlog_entries}


def in_nodes(world: World, keys: Iterable[str]) -> dict[int, dict[str, Fields]]:
    """What each live node goes by."""
    found: dict[int, dict[str, Fields]] = {}
    for number, process in world.nodes.items():
        rooms = process.node.rooms
        if process.host.alive and rooms is not None:
            view = rooms.changelog.view
            found[number] = {}
            for key in keys:
                kind, _, name = key.partition("/")
                entry: Any = view.policy(name) if kind == "policy" else view.shadow(name)
                found[number][key] = of_record(key, None if entry is None else entry.value.SerializeToString())
    return found


def differing(log: Mapping[str, Fields], nodes: Mapping[int, Mapping[str, Fields]]) -> Iterator[str]:
    """Nodes that go by something else than the last record, the one that compaction keeps and a new node will read."""
    for number, known in nodes.items():
        for key, fields in log.items():
            if known[key] != fields:
                yield f"node {number} goes by {known[key]} for {key}, and the log ends with {fields}"
