"""What operators ask of a node by REST, asked of the same object that its HTTP side asks.

Each of `ACTIONS` is a coroutine that runs on the node's host. A node may refuse any of them, in words (`PortError`);
whatever else it raises is a crash.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sidecar.node import port
from sidecar.node.view import NodeView
from sidecar.protocol.calls.logs import OffsetAt
from sidecar.shadow.cursors import AtOffset, AtTime
from sidecar.shadow.subjects import Related, Standing, Subject, claim, topics
from tests.sim.words import Fields, Words, no_policy, no_shadow, policy_fields, shadow_fields
from tests.sim.world import TOPICS

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Mapping

    from tests.sim.host import Host

EXTRA: Final = ("extra1", "extra2")
"""Names of shadows that operators make."""
GROUPS: Final = ("group0", "group1")
_FOLLOWED: Final = 3
_PATIENCE_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator that asks a node about a topic. `partitions`: how many it has."""

    view: NodeView
    rng: random.Random
    topic: str
    shadow: str
    partitions: int
    host: Host
    """The node's."""
    words: Words

    async def says(self, key: str, fields: Fields, work: Awaitable[Any], *, makes: bool = False) -> None:
        """Have the node do what changes a record, and note it."""
        await self.words.during(self.host, key, fields, work, makes=makes)

    @property
    def part(self) -> int | None:
        """A partition, where the scope of the topic's owners is one."""
        return self.rng.randrange(self.partitions) if self.topic == "split" else None

    def generations(self) -> frozenset[int] | None:
        """What an If-Match says: mostly nothing, else what may be, or not, the case."""
        return self.rng.choice((None, None, None, frozenset({0}), frozenset(range(4)), frozenset({1, 2})))


async def _fence(who: Operator) -> None:
    await who.view.fence(who.topic, who.part, who.generations())


async def _release(who: Operator) -> None:
    await who.view.release(who.topic, who.part, who.generations())


async def _policy(who: Operator) -> None:
    change = _change(who.rng)
    work = who.view.merge_policy(who.topic, change, _match(who))
    await who.says(f"policy/{who.topic}", policy_fields(change), work)


def _match(who: Operator) -> port.IfMatch | None:
    wanted = who.generations()
    return None if wanted is None else port.IfMatch(wanted, who.part)


def _change(rng: random.Random) -> port.Policy:
    fields: list[dict[str, Any]] = [
        {"access_mode": rng.choice(list(port.AccessMode))},
        {"deduplication": True},
        {"deduplication": False},
        {"exclusive_reader": rng.random() < 0.5},
        {"scope": rng.choice(list(port.Scope))},
        {"log_append_time": rng.random() < 0.7},
    ]
    return port.Policy(**rng.choice(fields))


async def _unpolicy(who: Operator) -> None:
    await who.says(f"policy/{who.topic}", no_policy(), who.view.delete_policy(who.topic, _match(who)))


async def _prefix(who: Operator) -> None:
    """A policy of all topics whose names begin so: for a while, or for good."""
    name = f"{who.topic[:3]}*"
    change = _change(who.rng)
    await who.says(f"policy/{name}", policy_fields(change), who.view.merge_policy(name, change))
    await asyncio.sleep(who.rng.random())
    if who.rng.random() < 0.7:
        await who.says(f"policy/{name}", no_policy(), who.view.delete_policy(name))


async def _look(who: Operator) -> None:
    view = who.view
    await view.status()
    await view.checks()
    await view.topic_names(governed=who.rng.random() < 0.5)
    await view.topics([who.topic, f"{who.topic[:3]}*", "missing"], producers=True)
    await view.clients(0, 100)
    await view.shadows.known()
    await view.shadows.page(None, "", 10)
    await view.shadows.readable([who.topic, who.shadow])


async def _events(who: Operator) -> None:
    rng = who.rng
    after = rng.choice((None, None, -1, 3, 10**6))
    topic = rng.choice((None, who.topic))
    async with aclosing(who.view.events(after, rng.choice((0, 0, 3, 100)), topic)) as events:
        seen = 0
        async for _ in events:
            seen += 1
            if seen >= _FOLLOWED:
                return


def _name(rng: random.Random) -> str:
    """Of a producer that may have written sequence ids, and may have gone."""
    return rng.choice(("app0", "app0", "app1", "app2", "app0-0", "app0-1", "all-0", "stranger", "many"))


async def _producers(who: Operator) -> None:
    view, name = who.view, _name(who.rng)
    await view.producers(who.topic, 100)
    await view.producer(who.topic, name)


async def _make(who: Operator) -> None:
    """A shadow, or one that cannot be. One that readers read stays a view of the same log: they are judged by that."""
    rng = who.rng
    name, source = rng.choice((who.shadow, *EXTRA)), who.topic
    allow = rng.choice((None, ["User:*"], ["User:one", "User:two"]))
    if rng.random() < 0.4:
        name = rng.choice(("ordinary", "no name!", "__sidecar_x", "x" * 300, source, ".."))
    elif rng.random() < 0.3:
        source = rng.choice(("missing", "mirror", "__sidecar_default", "no name!"))
    elif rng.random() < 0.4:
        allow = rng.choice((["nobody"], ["User:"], ["User:" + "x" * 2_000], [f"User:{n}" for n in range(2_000)]))
    if name == who.shadow and source == who.topic:
        source = TOPICS[name].shadow_of or source
    limit = rng.choice((0, 0, 3, -1))
    says = shadow_fields(source, ["User:*"] if allow is None else allow, limit)
    await who.says(f"shadow/{name}", says, who.view.shadows.create(source, name, allow, limit), makes=True)


async def _unmake(who: Operator) -> None:
    await who.says(f"shadow/{who.shadow}", no_shadow(), who.view.shadows.delete(who.topic, who.shadow))


async def _change_shadow(who: Operator) -> None:
    rng = who.rng
    allow = rng.choice((None, ["User:*"], ["User:one"]))
    await _changed(who, allow, rng.choice((None, 0, 2, 5)))


async def _changed(who: Operator, allow: list[str] | None, limit: int | None) -> None:
    work = who.view.shadows.change(who.shadow, allow, limit)
    await who.says(f"shadow/{who.shadow}", shadow_fields(None, allow, limit), work)


async def _cursors(who: Operator) -> None:
    await who.view.shadows.cursors(who.shadow)
    await who.view.shadows.stats(who.shadow)


async def _reset(who: Operator) -> None:
    rng = who.rng
    make = rng.choice((lambda _: OffsetAt.EARLIEST, lambda _: OffsetAt.LATEST, AtTime, AtOffset))
    to = make(rng.choice((0, 1, 5, 10**6, 1_760_000_003_000)))
    partitions = rng.choice((None, None, [0], [0, 1], [7]))
    group = rng.choice((*GROUPS, *GROUPS, "", "g" * 40_000))
    await who.view.shadows.reset_cursor(who.shadow, group, to, partitions)


async def _limit(who: Operator) -> None:
    """Cursors of the shadow that are a few records behind are reset."""
    await _changed(who, None, who.rng.choice((1, 2, 4)))


async def _delete_source(who: Operator) -> None:
    who.words.unsaid |= {f"shadow/{name}" for name in (who.shadow, *EXTRA, "mirror")}
    await who.view.shadows.delete_topic(who.topic, force=who.rng.random() < 0.7)


async def _forget(who: Operator) -> None:
    await who.view.forget_producer(who.topic, _name(who.rng))


async def _touch(who: Operator) -> None:
    """Something that has nodes read the settings of topics again."""
    change = port.Policy(exclusive_reader=True)
    await who.says("policy/zzz*", policy_fields(change), who.view.merge_policy("zzz*", change))


async def _schemas(who: Operator) -> None:
    """What the proxy of a schema registry asks before it passes a question on, and when it lists subjects."""
    shadows = who.view.shadows
    names = [f"{base}{rest}" for base in (who.topic, who.shadow) for rest in ("-value", "-key", "-x-value", "", "/")]
    known = {found.name: found.source for found in await shadows.known()}
    related = Related(known)
    readable = dict(await shadows.readable([*related.names, who.topic, who.shadow]))
    for text in [*names, ":.eu:" + names[0], ":*:" + names[-2], ":.broken"]:
        subject = Subject.parse(text)
        assert str(subject) == text
        found = claim(subject, known)
        if found is not None:
            readable.update(await shadows.readable(found.questions))
            is_open = found.standing(readable) is Standing.READABLE
            assert not is_open or (readable[found.shadow] and found.read.name.startswith(found.source))
            assert found.back(str(found.read)) == text
        if not any(map(related.may_hide, topics(subject.name))):
            shown = list(related.shown(subject, readable))
            assert found is not None or subject in shown
        assert subject.is_in(":*:")


ACTIONS: Final[Mapping[str, Callable[[Operator], Awaitable[None]]]] = {
    "fence": _fence, "release": _release, "policy": _policy, "delete policy": _unpolicy, "prefix": _prefix,
    "look": _look, "events": _events, "producers": _producers, "make shadow": _make,
    "delete shadow": _unmake, "change shadow": _change_shadow, "cursors": _cursors, "reset cursor": _reset,
    "limit shadow": _limit, "delete source": _delete_source, "forget": _forget, "touch": _touch, "schemas": _schemas,
}  # fmt: skip
OF_OWNERS: Final = frozenset({"fence", "release", "producers", "forget"})
"""Actions that the node which serves the topic can do alone: operators learn which one it is."""
MOVE_CURSORS: Final = frozenset({"reset cursor", "limit shadow", "change shadow"})
"""Actions behind which a group may stand elsewhere in a shadow than it committed."""


async def operate(action: str, who: Operator, refused: Callable[[str], None]) -> bool:
    """Do it; whether it was done. `refused` hears why not."""
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await ACTIONS[action](who)
    except port.PortError as error:
        refused(type(error).__name__)
    except TimeoutError:
        refused("TimeoutError")
    else:
        return True
    return False
