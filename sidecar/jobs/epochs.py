"""Assigns every epoch of a topic's writer slots to its session, from what the changelog and the events topic still
hold. Pure.

The changelog is compacted: of each slot only the newest record is sure to be there. That record names the slot's
earlier producer ids, each with the name it belonged to up to an epoch. The events topic has every claim and failover of
90 days. An epoch that is in neither still belongs to the slot, because only nodes get epochs. Its session is that of
the last known epoch before it (a client that raises its own epoch stays the same session), or unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sidecar.dedup.names import producer_name
from sidecar.pipeline.audit.facts import Writer

LAST_EPOCH: Final = 32_767


@dataclass(frozen=True, slots=True)
class Opening:
    """One opened epoch, and its session. `name` is the client's own name; `at`, if known, is the record's offset in the
    ownership topic; `ms` is Unix time. `generation` is None for a shared session.
    """

    producer_id: int
    epoch: int
    slot: str
    session: str
    name: str
    generation: int | None
    ms: int
    at: int | None = None


@dataclass(frozen=True, slots=True)
class Former:
    """The name that a producer id belonged to, up to an epoch; None: it belonged to several names, no longer known."""

    producer_id: int
    last_epoch: int
    name: str | None


def writers(
    openings: Iterable[Opening],
    formers: Iterable[Former],
    slots: Mapping[str, Sequence[int]],
    newest: Mapping[int, int],
) -> list[Writer]:
    """Every epoch of every producer id, in as few rows as possible. `slots`: the producer ids of each slot, the present
    one last. `newest`: the highest epoch of each id that may still write; of earlier ids all epochs are listed.
    """
    opened: dict[int, dict[int, Opening]] = {}
    for each in sorted(openings, key=lambda opening: opening.at is not None):  # records of the changelog replace events
        opened.setdefault(each.producer_id, {})[each.epoch] = each
    kept: dict[int, dict[int, str | None]] = {}
    for former in formers:
        kept.setdefault(former.producer_id, {})[former.last_epoch] = former.name
    places = {producer_id: (slot, rank) for slot, ids in slots.items() for rank, producer_id in enumerate(ids)}
    given_up = {producer_id for ids in slots.values() for producer_id in ids[:-1]}
    found: list[Writer] = []
    for producer_id in sorted({*opened, *kept, *places}):
        its, formerly = opened.get(producer_id, {}), kept.get(producer_id, {})
        some = next(iter(its.values()), None)
        slot, rank = places.get(producer_id, (some.slot if some else "?", 0))
        last = LAST_EPOCH if producer_id in given_up else max([newest.get(producer_id, -1), *its, *formerly])
        found += _of_one(producer_id, slot, rank, its, formerly, last)
    return found


def _of_one(
    producer_id: int,
    slot: str,
    rank: int,
    opened: Mapping[int, Opening],
    formerly: Mapping[int, str | None],
    last: int,
) -> list[Writer]:
    begins = sorted({0, *opened, *(epoch + 1 for epoch in formerly if epoch < last)})
    ends = [*(epoch - 1 for epoch in begins[1:]), last]
    found: list[Writer] = []
    for first, end in zip(begins, ends, strict=True):
        known = opened.get(max((epoch for epoch in opened if epoch <= first), default=-1))
        name = known.name if known is not None else None
        until = min((epoch for epoch in formerly if epoch >= first), default=None)
        if until is not None and formerly[until] is not None and first not in opened:
            name = formerly[until]
        encoded = None if name is None else producer_name(name)
        found.append(
            Writer(
                producer_id=producer_id,
                first_epoch=first,
                last_epoch=end,
                slot=slot,
                rank=rank,
                shared=slot.isdigit() and slot != "0",
                session=known.session if known is not None else None,
                name=None if encoded is None else encoded.decode(),
                generation=known.generation if known is not None else None,
                opened_at=known.at if known is not None else None,
                opened_ms=known.ms if known is not None else None,
                opened_epoch=known.epoch if known is not None else None,
            )
        )
    return found


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """A change at `at_ms`, Unix ms: a policy was set for a pattern (a topic, `prefix.*`, `*`), or deleted."""

    at_ms: int
    pattern: str
    deleted: bool


def ungoverned(topic: str, changes: Iterable[PolicyChange], present: Iterable[str]) -> list[tuple[int, int | None]]:
    """The times (from, to) in which a topic that had been governed had no policy. `present`: the patterns that have a
    policy now. A pattern without a known change had its policy all the time.
    """
    matching = [change for change in changes if _matches(change.pattern, topic)]
    first: dict[str, bool] = {}
    for change in matching:
        first.setdefault(change.pattern, change.deleted)
    # A policy that is deleted had been there; one that never changed since is there.
    there = {pattern for pattern, deleted in first.items() if deleted}
    there |= {pattern for pattern in present if _matches(pattern, topic) and pattern not in first}
    found: list[tuple[int, int | None]] = []
    since: int | None = None
    for change in matching:
        was = bool(there)
        if change.deleted:
            there.discard(change.pattern)
        else:
            there.add(change.pattern)
        if was and not there:
            since = change.at_ms
        elif there and since is not None:
            found.append((since, change.at_ms))
            since = None
    return [*found, (since, None)] if since is not None else found


def _matches(pattern: str, topic: str) -> bool:
    return pattern == topic or (pattern.endswith("*") and topic.startswith(pattern[:-1]))
