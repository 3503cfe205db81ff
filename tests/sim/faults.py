"""Faults of nodes, of Redis, and of the network, as steps of a history."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tests.sim.host import Host
    from tests.sim.net import Link
    from tests.sim.play import Play


def kill_node(play: Play, node: int, fuse: int, lasts: float, silently: bool) -> None:
    process = play.world.nodes[node]
    host = process.host
    if not host.alive or host.frozen:
        return

    def died(dead: Host) -> None:
        play.effect("node killed")
        process.wanted = False
        play.world.network.died(dead, silently=silently)
        play.later(lasts, lambda: start_again(play, node))

    host.on_death = died
    host.fuse = fuse
    play.world.loop.at(None, play.world.now + 0.3, play.world.loop.kill, host)


def start_again(play: Play, node: int) -> None:
    if not play.world.nodes[node].host.alive:
        play.world.start_node(node)


def replace_node(play: Play, node: int, former: bool, drains: bool, lasts: float) -> None:
    """It ends, and starts again as another release."""
    world = play.world
    if world.release is None:
        return
    (world.former.add if former else world.former.discard)(node)
    play.effect("node rolled back" if former else "node upgraded", int(world.started_as_former(node) != former))
    if drains:
        drain_node(play, node, lasts)
    elif world.nodes[node].host.alive and not world.nodes[node].host.frozen:
        world.kill_node(node)
        play.later(lasts, lambda: start_again(play, node))


def freeze_node(play: Play, node: int, lasts: float, timers_first: bool) -> None:
    _stop(play, node, lasts, "node frozen", timers_first=timers_first)


def suspend_node(play: Play, node: int, lasts: float) -> None:
    _stop(play, node, lasts, "node suspended")


def _stop(play: Play, node: int, lasts: float, name: str, *, timers_first: bool = False) -> None:
    loop, host, began = play.world.loop, play.world.nodes[node].host, play.world.now
    if not host.alive or host.frozen:
        return
    loop.freeze(host)
    play.stood_still[node] = math.inf

    def thaw() -> None:
        play.stood_still[node] = play.world.now
        if host.alive and host.frozen:
            play.effect(name, int(bool(host.held)))
            slept = play.world.now - began if name == "node suspended" else 0.0
            loop.thaw(host, slept=slept, timers_first=timers_first)

    play.later(lasts, thaw)


def drain_node(play: Play, node: int, lasts: float) -> None:
    process = play.world.nodes[node]
    if not process.host.alive or process.host.frozen or not play.world.serving(node) or not process.wanted:
        return
    process.wanted = False

    async def end() -> None:
        await process.node.drain()
        await process.node.stop()
        play.effect("node drained")
        play.world.loop.at(None, play.world.now, play.world.loop.kill, process.host)
        play.later(lasts, lambda: start_again(play, node))

    play.world.spawn(process.host, end())


def jump_clock(play: Play, node: int, by: float) -> None:
    play.world.nodes[node].host.wall_offset += by
    play.effect("clock jumped")


def empty_redis(play: Play) -> None:
    play.world.redis.empty()


def roll_back_redis(play: Play) -> None:
    play.world.redis.roll_back()


def silence_redis(play: Play, lasts: float) -> None:
    play.world.redis.silence()
    play.later(lasts, play.world.redis.speak)


def stop_redis(play: Play, lasts: float) -> None:
    if play.world.redis.is_up:
        play.world.redis.down()
        play.effect("redis stopped")
        play.later(lasts, play.world.redis.up)


def _others(play: Play, other: str) -> Iterable[str]:
    if other == "guests":
        return sorted({host.name for host in play.guests})
    return sorted({host.name for _, host in play.producers + play.consumers}) if other == "clients" else (other,)


def _links(play: Play, node: int, other: str, share: float) -> list[Link]:
    rng, network = play.world.rng, play.world.network
    found = [link for name in _others(play, other) for link in network.between(f"node-{node}", name)]
    return [link for link in found if rng.random() < share]


def cut_path(play: Play, node: int, other: str, lasts: float) -> None:
    network = play.world.network
    for name in _others(play, other):
        one = f"node-{node}"
        play.effect("path cut", int(bool(network.between(one, name))))
        network.cut(one, name)
        play.later(lasts, lambda one=one, name=name: network.heal(one, name))


def reset(play: Play, node: int, other: str, share: float) -> None:
    for link in _links(play, node, other, share):
        play.world.network.reset(link)
        play.effect("connection reset")


def lose_answers(play: Play, node: int, other: str, share: float, lasts: float) -> None:
    for link in _links(play, node, other, share):
        play.world.network.lose_answers(link, lasts)
        play.effect("answers lost")


STEPS: Final[Mapping[str, Callable[..., None]]] = {
    "kill node": kill_node, "freeze node": freeze_node, "suspend node": suspend_node, "drain node": drain_node,
    "jump clock": jump_clock, "empty redis": empty_redis, "roll back redis": roll_back_redis,
    "silence redis": silence_redis, "stop redis": stop_redis, "cut path": cut_path, "reset": reset,
    "lose answers": lose_answers, "replace node": replace_node,
}  # fmt: skip
