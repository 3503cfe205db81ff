"""Clients of the own APIs: they claim strings, topics for reading and topics for writing, watch, ask and let go.

What they are granted goes to the ledger.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sidecar.changelog import claim_key
from sidecar.v1 import control_pb2 as control
from tests.sim import wire
from tests.sim.ledger import Granted, Told
from tests.sim.wire import LostError, Wire

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping, Sequence

    from tests.sim.ledger import Ledger

MODES: Final = (control.EXCLUSIVE, control.WAIT_FOR_EXCLUSIVE, control.EXCLUSIVE_WITH_FENCING)
_PATIENCE_S: Final = 6.0
_AGAIN_S: Final = 0.15


@dataclass(frozen=True, slots=True)
class Wishes:
    """What is claimed. `strings` without a group, `topic` for reading with one and for writing without."""

    group: str = ""
    strings: tuple[str, ...] = ()
    topic: str = ""
    partitions: tuple[int, ...] = ()
    generation: int | None = None

    def claims(self) -> list[control.Claim]:
        found = [control.Resource(name=name) for name in self.strings]
        if self.topic and not self.partitions:
            found.append(control.Resource(topic=self.topic))
        found += [control.Resource(topic=self.topic, partition=index) for index in self.partitions]
        return [control.Claim(resource=each, generation=self.generation) for each in found]


class Claimant:
    """One process that claims something, holds it for a while, and lets go or does not."""

    def __init__(
        self, name: str, wishes: Wishes, addresses: Sequence[tuple[str, int]], counts: Mapping[str, int],
        ledger: Ledger, rng: random.Random, effect: Callable[[str], None], mode: int | None = None,
    ) -> None:  # fmt: skip
        """`mode`: any where it is None."""
        self.name = name
        self.token = rng.randbytes(16)
        self.granted = False
        self._wishes = wishes
        self._addresses = addresses
        self._counts = counts
        self._ledger = ledger
        self._rng = rng
        self._effect = effect
        self._mode = mode
        self._place = rng.randrange(len(addresses))
        self._wire: Wire | None = None
        self._producer_id = -1

    async def run(self, lasts: float, is_over: Callable[[], bool]) -> None:
        """Until it has held its claims for this time, or does not get them."""
        loop, rng = asyncio.get_running_loop(), self._rng
        mode = rng.choice(MODES) if self._mode is None else self._mode
        until = loop.time() + _PATIENCE_S + lasts
        if rng.random() < 0.5:
            await self._get_producer_id()
        while loop.time() < until and not is_over():
            if not await self._own(mode):
                await asyncio.sleep(_AGAIN_S)
                continue
            self._effect("claimed")
            await self._look()
            await self._hold(loop.time() + lasts, is_over)
            if rng.random() < 0.5:
                await self._release()
            break
        if self._wire is not None and rng.random() < 0.5:
            self._wire.close()

    async def _ask(self, key: int, request: Any, kind: Any, patience: float = 3.0) -> Any:
        """The answer; None where none came."""
        try:
            if self._wire is None or self._wire.closed:
                self._wire = await Wire.open(self._addresses[self._place], self.name)
            return kind.FromString(await self._wire.call(key, request.SerializeToString(), patience))
        except LostError:
            self._place = (self._place + 1) % len(self._addresses)
            await asyncio.sleep(0.05)
            return None

    async def _get_producer_id(self) -> None:
        try:
            self._wire = await Wire.open(self._addresses[self._place], self.name)
            answer = await self._wire.call(wire.INIT_PRODUCER_ID, wire.init_producer_id(), 3.0)
        except LostError:
            return
        error, producer_id, _ = wire.producer_id(answer)
        if not error:
            self._producer_id = producer_id

    async def _own(self, mode: Any) -> bool:
        wishes, rng = self._wishes, self._rng
        wait_ms = rng.choice((0, 200, 500)) if mode == control.WAIT_FOR_EXCLUSIVE else 0
        request = control.OwnRequest(
            group=wishes.group, claims=wishes.claims(), mode=mode, producer_name=self.name, token=self.token,
            wait_ms=wait_ms, producer_id=self._producer_id,
        )  # fmt: skip
        if rng.random() < 0.1:
            await self._mistake(request)
        answer = await self._ask(wire.OWN, request, control.OwnResponse)
        if answer is None:
            return False
        self._hear(answer)
        for told in answer.ownerships:
            if told.error == control.NOT_SERVING and 1 <= told.serving_node <= len(self._addresses):
                self._turn_to(told.serving_node)
        if answer.error == control.DEPOSED:
            self.token = rng.randbytes(16)  # another request
        self.granted = answer.error == control.NONE
        return self.granted

    async def _mistake(self, request: control.OwnRequest) -> None:
        """A request that cannot be granted, in front of the right one: of another token, or of none."""
        wrong = control.OwnRequest()
        wrong.CopyFrom(request)
        wrong.token = self._rng.randbytes(16)
        match self._rng.randrange(6):
            case 0:
                wrong.mode = control.SHARED
            case 1:
                wrong.claims.append(wrong.claims[0])
            case 2:
                del wrong.claims[:]
            case 3:
                wrong.token = b"short"
            case 4:
                wrong.claims.append(control.Claim(resource=control.Resource(topic="missing", partition=9)))
            case _:
                wrong.claims.extend(
                    control.Claim(resource=control.Resource(name="s" * 200 + str(n))) for n in range(40)
                )
        answer = await self._ask(wire.OWN, wrong, control.OwnResponse)
        if answer is not None and not answer.error:
            await self._ask(wire.RELEASE, control.ReleaseRequest(token=wrong.token), control.ReleaseResponse)

    def _turn_to(self, node: int) -> None:
        if self._place != node - 1:
            self._place = node - 1
            if self._wire is not None and self._producer_id >= 0:  # its session does not end with the connection
                self._wire.close()
            self._wire = None

    def _hear(self, answer: control.OwnResponse) -> None:
        if answer.error != control.NONE:
            return
        if self._wishes.group or self._wishes.strings:
            self._ledger.granted += [
                Granted(
                    claim_key(self._wishes.group, each.resource).topic,
                    each.generation,
                    each.owner_session,
                    self.token,
                    each.fencing_token,
                )
                for each in answer.ownerships
            ]
            return
        now = asyncio.get_running_loop().time()
        for told in answer.ownerships:
            topic = told.resource.topic
            if topic:
                whole = range(self._counts[topic])
                for index in (told.resource.partition,) if told.resource.HasField("partition") else whole:
                    owner = told.owner_name or self.name
                    self._ledger.told.append(Told(f"{topic}/{index}", told.generation, owner, now, granted=True))

    async def _look(self) -> None:
        """Ask about owners and sequences: any node answers."""
        wishes = self._wishes
        resources = [claim.resource for claim in wishes.claims()] if self._rng.random() < 0.5 else []
        asked = control.DescribeOwnersRequest(group=wishes.group, resources=resources)
        await self._ask(wire.DESCRIBE_OWNERS, asked, control.DescribeOwnersResponse)
        last = control.LastSequenceRequest(topic=wishes.topic or "counted", producer_name="app0")
        await self._ask(wire.LAST_SEQUENCE, last, control.LastSequenceResponse, 8.0)

    async def _hold(self, until: float, is_over: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < until and not is_over():
            watch = control.WatchRequest(token=self.token, wait_ms=200)
            answer = await self._ask(wire.WATCH, watch, control.WatchResponse)
            if answer is None:
                if not await self._own(control.EXCLUSIVE):  # the same token: its claims, if it has them
                    return
            elif answer.error or any(each.error for each in answer.changed):
                return
            else:
                await asyncio.sleep(0.02)

    async def _release(self) -> None:
        wishes = self._wishes
        some = [claim.resource for claim in wishes.claims()][: self._rng.choice((1, 0, 0))]
        request = control.ReleaseRequest(group=wishes.group, resources=some, token=self.token)
        answer = await self._ask(wire.RELEASE, request, control.ReleaseResponse)
        if answer is not None and not answer.error:
            self._effect("claim released")
