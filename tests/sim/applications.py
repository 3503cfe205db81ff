"""Applications: sessions one after the other that write records under one name, as steps of a history.

A session is a process of its own: it runs on its own host, and ends without waiting for anything.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tests.sim import clients
from tests.sim.host import Host

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.sim.ledger import Sent
    from tests.sim.play import Play


@dataclass(slots=True, eq=False)
class App:
    """An application: sessions one after the other that write records under one name."""

    name: str
    args: dict[str, Any]
    sessions: int = 0
    producer: clients.Producer | None = None
    host: Host | None = None
    left: int = 0
    closed: bool = False
    records: list[Sent] = field(default_factory=list)
    next_ids: dict[tuple[int, str], int] = field(default_factory=dict)
    """By partition and producer name."""


def produce(play: Play, app: str, **args: Any) -> None:
    found = play.apps[app] = App(app, args, left=args["batches"])
    play.topics.add(args["topic"])
    _session(play, found)


def _session(play: Play, app: App) -> None:
    """A new process of an application, with its own producer."""
    args = app.args
    app.sessions += 1
    app.closed = False
    host = app.host = Host(f"client-{app.name}")
    host.on_death = play.world.network.died
    client_id = f"{app.name};mode={args['mode']}" if args["mode"] else app.name
    with play.world.loop.on(host):
        app.producer = clients.Producer(
            clients.LIBRARIES[args["library"]], f"{app.name}.{app.sessions}", client_id, play.world.addresses,
            args["topic"], play.world.ledger, play.world.rng, _clock(play, args.get("age", 0.0)),
            compressed=args.get("compressed", False), version=args.get("version", 8), roams=args.get("roams", 0.0),
            key=args.get("key"),
        )  # fmt: skip
    play.producers.append((app.producer, host))
    play.world.spawn(host, _write(play, app, app.producer))


def _clock(play: Play, age: float) -> Callable[[], int]:
    """The time that an application's records carry: they are so many seconds old."""
    return play.wall_ms if not age else lambda: play.wall_ms() - int(age * 1000)


async def _write(play: Play, app: App, producer: clients.Producer) -> None:
    rng, args = play.world.rng, app.args
    again = _unfinished(play, app)
    while not producer.closed and not play.over and (app.left > 0 or again):
        await asyncio.sleep(args["every"] * (0.5 + rng.random()))
        if producer.closed or play.over:
            return
        if producer.fatal is not None:
            if app.sessions < 4:
                await asyncio.sleep(0.3)
                play.world.loop.at(None, play.world.now, restart, play, app.name)
            return
        if producer.waiting > 10:
            continue
        most = play.counts[args["topic"]] if args["partitions"] > 1 else 1
        partition, count = rng.randrange(most), rng.randint(1, args["burst"])
        ids, names = None, None
        if args["ids"]:
            if not again and rng.random() < args.get("repeats", 0.0):
                again = _unfinished(play, app)
            partition, ids, names = _ids(play, app, again, partition, count)
            count = len(ids)
        else:
            app.left -= 1
        size = args.get("size", 0)
        values = [
            b"%s/%d/%d%s" % (producer.session.encode(), partition, len(app.records) + n, b"." * size)
            for n in range(count)
        ]
        several = names if args.get("names", 1) > 1 else None
        app.records += producer.send(partition, values, ids=ids, name=app.name, names=several)


def _ids(
    play: Play, app: App, again: list[tuple[int, str, int]], partition: int, count: int
) -> tuple[int, list[int], list[str]]:
    """The ids of the next batch, each with its name: what is to be sent `again`, and what is new behind it."""
    rng, several = play.world.rng, app.args.get("names", 1)
    ids, names = list[int](), list[str]()
    if again:
        partition = again[0][0]
        while again and again[0][0] == partition and len(ids) < app.args["burst"]:
            _, name, each = again.pop(0)
            ids.append(each)
            names.append(name)
        if again or rng.random() < 0.5:
            return partition, ids, names
    app.left -= 1
    for _ in range(count):
        whose = "all" if app.args.get("common") else app.name
        name = app.name if several == 1 else f"{whose}-{rng.randrange(several)}"
        first = app.next_ids.get((partition, name), 0)
        app.next_ids[partition, name] = first + 1
        ids.append(first)
        names.append(name)
    return partition, ids, names


def _unfinished(play: Play, app: App) -> list[tuple[int, str, int]]:
    """Ids from the first one on that was not acknowledged, in each partition: what an application that comes back
    sends again.
    """
    if not app.args["ids"]:
        return []
    found: list[tuple[int, str, int]] = []
    for (partition, name), behind in sorted(app.next_ids.items()):
        done = {
            sent.sequence_id
            for sent in app.records
            if (sent.partition, sent.name) == (partition, name) and sent.delivered
        }
        first = next((each for each in range(behind) if each not in done), behind)
        first = max(0, first - play.world.rng.choice((0, 0, 1, 3)))  # it was behind with writing down how far it is
        found += [(partition, name, each) for each in range(first, behind)]
    return found


def restart(play: Play, app: str, lingers: float = 0.0) -> None:
    """`lingers`: for so long the process before stands still, and its connections stay open."""
    found = play.apps.get(app)
    if found is None or play.over:
        return
    if lingers and found.producer is not None and found.host is not None:
        leave = partial(play.leave, found.producer, found.host)
        play.world.loop.freeze(found.host)
        play.effect("application stands still")
        play.later(lingers, leave)
    else:
        close(play, app)
    _session(play, found)


def renew(play: Play, app: str) -> None:
    """It asks for another producer id, in the name of the one it has."""
    found = play.apps.get(app)
    if found is not None and found.producer is not None and found.producer.initialise_again():
        play.effect("producer id renewed")


def close(play: Play, app: str) -> None:
    found = play.apps.get(app)
    if found is None or found.producer is None or found.host is None:
        return
    play.leave(found.producer, found.host)


STEPS: Final[Mapping[str, Callable[..., None]]] = {
    "produce": produce, "restart": restart, "renew": renew, "close": close,
}  # fmt: skip
