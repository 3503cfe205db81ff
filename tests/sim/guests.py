"""Clients beside the applications, as steps of a history: readers, groups, claimants, strangers, operators.

Each runs on its own host, but what an operator asks for runs on the node that is asked.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from sidecar.node.port import PortError
from sidecar.node.view import NodeView
from sidecar.v1 import control_pb2 as control
from tests.sim import clients, wire
from tests.sim.claimants import Claimant, Wishes
from tests.sim.former import environment
from tests.sim.host import Host
from tests.sim.ledger import Told
from tests.sim.members import Member
from tests.sim.operators import MOVE_CURSORS, OF_OWNERS, Operator
from tests.sim.operators import operate as ask_node
from tests.sim.strangers import Stranger
from tests.sim.strangers import transact as transact_as
from tests.sim.words import no_shadow, policy_fields, shadow_fields
from tests.sim.world import TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.sim.play import Play

_DECIDES_S: Final = 0.5
_OWNING: Final = control.DESCRIPTOR.enum_types_by_name["AccessMode"].values_by_name


def consume(play: Play, topic: str, shares: bool = False, resets: bool = False) -> None:
    play.topics.add(TOPICS[topic].shadow_of or topic)
    host = play.client_host("reader")
    name = host.name.removeprefix("client-")
    with play.world.loop.on(host):
        world = play.world
        by_id = play.history.by_id and not shares
        consumer = clients.Consumer(
            name, world.addresses, topic, world.ledger, world.rng, by_id=by_id, shares=shares, resets=resets
        )
    play.consumers.append((consumer, host))
    play.world.spawn(host, consumer.run())


def claim(play: Play, group: str, strings: int, topic: str, partitions: list[int], mode: str, lasts: float) -> None:
    """Somebody claims strings, or a topic for reading or writing, by the own API."""
    host = play.client_host("claimant")
    if topic and not group:
        play.topics.add(topic)
    wishes = Wishes(
        group, tuple(f"string{each}" for each in range(strings)), topic, tuple(partitions),
        _generation(play, group, strings) if topic == "" or group else None,
    )  # fmt: skip
    with play.world.loop.on(host):
        claimant = Claimant(
            host.name, wishes, play.world.addresses, play.counts, play.world.ledger, play.world.rng, play.effect,
            _OWNING[mode.upper()].number if mode else None,
        )  # fmt: skip
    play.world.spawn(host, claimant.run(lasts, lambda: play.over))
    play.guests.append(host)


def _generation(play: Play, group: str, strings: int) -> int | None:
    rng = play.world.rng
    if strings == 1 and not group:
        return rng.choice((None, None, 0, 1, 3, 2**63 - 1))
    return rng.choice((None, None, None, 1, 2, 7))


def join(play: Play, group: str, topic: str, joins: bool, slow: float, lasts: float = 60.0, version: int = 4) -> None:
    """A consumer of a group, for some time. `version`: of Fetch."""
    host = play.client_host("member")
    count = play.counts.get(topic, 2)
    with play.world.loop.on(host):
        member = Member(
            group, host.name, play.world.addresses, topic, count, play.world.ledger, play.world.rng, joins=joins,
            version=version,
        )  # fmt: skip
    play.members.append(member)
    until = play.world.now + lasts
    play.world.spawn(host, member.run(lambda: play.over or play.world.now > until, slow))
    play.guests.append(host)


def stranger(play: Play, topic: str, partition: int, what: str) -> None:
    """A client of another make, or with mistakes, at the node that leads the partition or at any."""
    host = play.client_host("stranger")
    play.topics.add(topic)
    stranger = Stranger(
        host.name, _address(play, topic, partition), topic, partition, play.world.ledger, play.world.rng,
        play.wall_ms,
    )  # fmt: skip

    play.strangers.append(stranger)

    async def come() -> None:
        play.effect("stranger answered", await stranger.run(what))

    play.world.spawn(host, come())
    play.guests.append(host)


def _address(play: Play, topic: str, partition: int) -> tuple[str, int]:
    """Of the node that most probably serves a topic."""
    rng, world = play.world.rng, play.world
    for number, process in world.nodes.items():
        rooms = process.node.rooms
        if process.host.alive and rooms is not None and rooms.governed.serves(topic) and rng.random() < 0.9:
            return world.address(number)
    return rng.choice(world.addresses)


def transact(play: Play, topic: str, governed: str) -> None:
    """A transactional producer."""
    host = play.client_host("transact")
    play.topics.add(topic)
    stranger = Stranger(
        host.name, play.world.rng.choice(play.world.addresses), topic, 0, play.world.ledger, play.world.rng,
        play.wall_ms,
    )  # fmt: skip

    async def come() -> None:
        addresses = play.world.addresses
        done = await transact_as(stranger, lambda: play.world.rng.choice(addresses), governed, lambda: play.over)
        play.effect("transaction committed", done)

    play.world.spawn(host, come())
    play.guests.append(host)


def own(play: Play, topic: str, partition: int, mode: str, lasts: float) -> None:
    """Somebody claims a topic or partition by the own API, and leaves out the producer id: so it claims for `pid:0`, if
    some client has that.
    """
    play.topics.add(topic)
    host = play.client_host("owner")
    resource = control.Resource(topic=topic, partition=None if partition < 0 else partition)
    request = control.OwnRequest(
        claims=[control.Claim(resource=resource)],
        mode=_OWNING[mode.upper()].number,  # type: ignore[arg-type]
        producer_name=host.name.removeprefix("client-"),
        token=play.world.rng.randbytes(16),
        wait_ms=500,
    )
    play.world.spawn(host, _hold(play, host, request, lasts))


async def _hold(play: Play, host: Host, request: control.OwnRequest, lasts: float) -> None:
    addresses, loop = play.world.addresses, play.world.loop
    until, place = loop.time() + 6.0, play.world.rng.randrange(len(addresses))
    resource = request.claims[0].resource
    partitions = (resource.partition,) if resource.HasField("partition") else range(play.counts[resource.topic])
    while loop.time() < until and not play.over:
        try:
            to = await wire.Wire.open(addresses[place], request.producer_name)
            answer = control.OwnResponse.FromString(await to.call(wire.OWN, request.SerializeToString(), 3.0))
        except wire.LostError:
            await asyncio.sleep(0.2)
            place = (place + 1) % len(addresses)
            continue
        for told in answer.ownerships:
            if told.error == control.NONE and answer.error == control.NONE:
                owner = told.owner_name or request.producer_name
                play.world.ledger.told += [
                    Told(f"{resource.topic}/{each}", told.generation, owner, loop.time(), granted=True)
                    for each in partitions
                ]
            elif told.error == control.NOT_SERVING and 1 <= told.serving_node <= len(addresses):
                place = told.serving_node - 1
        if answer.error == control.NONE:
            play.effect("owned by request")
            await asyncio.sleep(lasts)
            to.close()
            return
        to.close()
        await asyncio.sleep(0.1)


def operate(play: Play, action: str, topic: str, shadow: str) -> None:
    """An operator asks a node for something."""
    numbers = [each for each in play.world.nodes if play.world.serving(each)]
    if not numbers:
        return
    number = play.world.rng.choice(numbers)
    if action in OF_OWNERS:
        number = next((each for each in numbers if play.world.governed(each).serves(topic)), number)
    _operate(play, number, action, topic, shadow)


def together(play: Play, acts: tuple[tuple[int, str], ...], topic: str, shadow: str) -> None:
    """Operators ask nodes, by number, for something at the same moment."""
    for number, action in acts:
        if play.world.serving(number):
            _operate(play, number, action, topic, shadow)


def _operate(play: Play, number: int, action: str, topic: str, shadow: str) -> None:
    process = play.world.nodes[number]
    partitions = play.counts.get(topic, 2)
    who = Operator(NodeView(process.node), play.world.rng, topic, shadow, partitions, process.host, play.words)

    if action == "delete source":
        play.reborn.add(topic)
    if action in MOVE_CURSORS:
        play.world.ledger.moved.add(shadow)

    async def ask() -> None:
        outcomes: list[str] = []
        if await ask_node(action, who, outcomes.append):
            play.effect(f"operator: {action}")
        for why in outcomes:
            play.world.logged[f"{action}: {why}"] += 1
        if play.world.heard is not None:
            play.world.heard(process.host.name, action, *(outcomes or ["done"]))

    if action == "delete source":
        play.operations.append(play.world.spawn(process.host, ask()))
    else:
        play.world.spawn(process.host, ask())


def remake_shadow(play: Play, shadow: str, source: str, gap: float) -> None:
    """A shadow is deleted, and created again over a source: by one node or by two."""
    numbers = [each for each in play.world.nodes if play.world.serving(each)]
    if not numbers:
        return
    one, other = play.world.rng.choice(numbers), play.world.rng.choice(numbers)
    play.topics.add(source)

    async def delete() -> None:
        host, node = play.world.nodes[one].host, play.world.nodes[one].node
        known = None if node.rooms is None else node.rooms.changelog.view.shadow(shadow)
        if known is None:
            return
        work = NodeView(node).shadows.delete(known.value.source, shadow)
        try:
            await play.words.during(host, f"shadow/{shadow}", no_shadow(), work)
        except PortError as error:
            play.world.logged[f"delete shadow: {type(error).__name__}"] += 1
            return
        play.effect("shadow deleted")
        play.world.loop.at(None, play.world.now + gap, again)

    def again() -> None:
        if not play.over and play.world.serving(other):
            play.world.spawn(play.world.nodes[other].host, create())

    async def create() -> None:
        host, shadows = play.world.nodes[other].host, NodeView(play.world.nodes[other].node).shadows
        says, work = shadow_fields(source, ["User:*"], 0), shadows.create(source, shadow, None, 0)
        try:
            await play.words.during(host, f"shadow/{shadow}", says, work, makes=True)
        except PortError as error:
            play.world.logged[f"make shadow: {type(error).__name__}"] += 1
        else:
            play.effect("shadow made again")

    play.world.spawn(play.world.nodes[one].host, delete())


def policy(play: Play, topic: str, **fields: Any) -> None:
    play.topics.add(topic)
    number = next((each for each in play.world.nodes if play.world.serving(each)), None)
    if number is not None:
        from sidecar.policy.policies import PolicyFields  # noqa: PLC0415

        host = play.world.nodes[number].host
        play.world.spawn(host, _set_policy(play, number, topic, PolicyFields(**_modes(fields))))


async def _set_policy(play: Play, number: int, topic: str, change: Any) -> None:
    try:
        work = environment(play.world.governed(number)).catalog.set(topic, change)
        host = play.world.nodes[number].host
        await play.words.during(host, f"policy/{topic}", policy_fields(change), work)
    except Exception as error:  # noqa: BLE001 - a policy that cannot be set now is no one's fault
        play.world.logged[f"policy: {type(error).__name__}"] += 1
    else:
        play.effect("policy changed")
        if change.deduplication:
            for partition in range(play.counts[topic]):
                batches = play.world.cluster.committed(topic, partition)
                play.since[topic, partition] = batches[-1].last + 1 if batches else 0


def accept_loss(play: Play, topic: str) -> None:
    """An operator decides that a topic goes on although ids of it cannot be known (docs/use/deduplication.md): its
    policy goes without sequence ids, and then with them.
    """
    policy(play, topic, deduplication=False)
    play.world.loop.at(None, play.world.now + _DECIDES_S, lambda: policy(play, topic, deduplication=True))


def _modes(fields: dict[str, Any]) -> dict[str, Any]:
    from metadata.ownership import AccessMode  # noqa: PLC0415

    return {name: AccessMode(value) if name == "access_mode" else value for name, value in fields.items()}


STEPS: Final[Mapping[str, Callable[..., None]]] = {
    "consume": consume, "claim": claim, "join": join, "stranger": stranger, "transact": transact, "own": own,
    "operate": operate, "policy": policy, "together": together, "remake shadow": remake_shadow,
    "accept loss": accept_loss,
}  # fmt: skip
