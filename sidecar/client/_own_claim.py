"""One claim by Own: finds the node that can grant it, waits for it, owns it by one connection, watches it by another.

The claim belongs to the connection that requested it and ends with that connection, so a lost claim is never taken
back: each connection uses its own token, and no other connection is opened once the claim was granted. A node reports
the loss of the claim at once, by its answer to Watch or by closing the connection. Without an answer the claim counts
for `silence` seconds after the last Watch that was answered was sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import Final

from sidecar.client.access import PLAIN_TCP, NodeAccess
from sidecar.client.connection import Address, Connection, connect, first
from sidecar.client.errors import ProducerFencedError, SidecarError, SidecarUnavailableError, away, of_own
from sidecar.protocol.calls.admin import DescribeTopics
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.own import Own, Release, Watch
from sidecar.v1 import control_pb2 as control

_AGAIN_S: Final = 0.1
_NEWS_S: Final = 0.05
"""How long a node may take to report why it closed a connection. Shorter than `_AGAIN_S`: to a later Watch the node
answers that it does not know the claim, which would look as if another client had taken it.
"""
_SHORT_S: Final = 5.0
"""The timeout of requests that a node answers from memory, in seconds."""
_TOKEN_BYTES: Final = 16
_QUESTIONS: Final = 4
"""The number of Watch requests during `silence`."""


class OwnClaim:
    """One claim, described by the request `asked`, which has no token and no waiting time yet. `timeout`: how many
    seconds to try while no node answers. `silence`, in seconds: see the module.
    """

    def __init__(
        self,
        bootstrap: tuple[Address, ...],
        asked: control.OwnRequest,
        timeout: float,
        silence: float,
        access: NodeAccess = PLAIN_TCP,
    ) -> None:
        self.generation: int = 0
        """The generation of the claim; 0 before it is granted."""
        self.fencing_token: int = 0
        """The highest fencing token that a node returned for the claim."""
        self.heard: float = 0.0
        """When the last Watch that confirmed the claim was sent, by the loop's clock."""
        self._access = access
        self._bootstrap = bootstrap
        self._asked = asked
        self._timeout = timeout
        self._silence = silence
        self._token = b""
        self._owner: Connection | None = None
        self._watcher: Connection | None = None
        self._nodes: dict[int, Address] = {}
        self._first: Address | None = None
        self._last: Address | None = None
        self._unsure = False
        self._clock: Callable[[], float] = lambda: 0.0

    @property
    def is_fresh(self) -> bool:
        """Whether a node confirmed the claim within `silence`."""
        return self._clock() - self.heard <= self._silence

    # Taking ---------------------------------------------------------------------------------------------------------

    async def take(self) -> None:
        """Take the claim. With the mode `wait_for_exclusive` wait without a limit. Raises `ProducerBusyError`;
        `ProducerFencedError` if this waiting request is evicted; `SidecarUnavailableError`; `SidecarError`.
        """
        self._clock = now = asyncio.get_running_loop().time
        until = now() + self._timeout
        while True:
            try:
                if await self._claim():
                    return
                until = now() + self._timeout
            except SidecarUnavailableError as error:
                if isinstance(error.code, ErrorCode):
                    await self._leave()
                if now() > until:
                    raise
                await asyncio.sleep(_AGAIN_S)

    async def _claim(self) -> bool:
        """Request the claim. Returns True if it is granted, False if the request still waits."""
        owner = await self._connected()
        waits = self._asked.mode == control.WAIT_FOR_EXCLUSIVE
        asked = control.OwnRequest()
        asked.CopyFrom(self._asked)
        asked.token, asked.wait_ms = self._token, self._patience_ms if waits else 0
        answer = await self._own(owner, asked)
        if answer.error == control.TIMED_OUT and waits:
            return False
        found = answer.ownerships[0] if answer.ownerships else control.Ownership()
        if answer.error == control.NONE:
            await self._vouched()
            self._note(found)
            return True
        error = of_own(answer.error, answer.message or found.message)
        if answer.error == control.NOT_SERVING:
            await self._leave(self._nodes.get(found.serving_node))
        if answer.error == control.HELD and self._unsure and found.owner_name == self._asked.producer_name:
            # Our own earlier claim, whose answer was lost: the node releases it once it notices the closed connection.
            raise SidecarUnavailableError(error.code, error.message, retryable=True)
        raise error

    async def _own(self, owner: Connection, asked: control.OwnRequest) -> control.OwnResponse:
        patience = max(self._silence, _SHORT_S) + asked.wait_ms / 1000
        try:
            return await owner.call(Own(asked), patience)
        except SidecarUnavailableError:
            self._unsure = True
            raise

    async def _vouched(self) -> None:
        """Confirm the claim by a Watch that is sent after the grant. Raises the error if it is lost already."""
        now = asyncio.get_running_loop().time()
        if (lost := await self._look(0, now + _SHORT_S)) is not None:
            raise lost

    @property
    def _patience_ms(self) -> int:
        return int(self._silence * 1000 / _QUESTIONS)

    # Keeping --------------------------------------------------------------------------------------------------------

    async def keep(self) -> SidecarError:
        """Wait until the claim is lost. Returns the reason: `ProducerFencedError`, or `SidecarUnavailableError` if the
        connection ended or the node did not answer.
        """
        assert self._owner is not None, "it was taken"
        ended, watching = asyncio.ensure_future(self._owner.ended()), asyncio.ensure_future(self._watch())
        tasks = {ended, watching}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():  # a new owner may be the cause, and the node may be about to report it
                await asyncio.wait(tasks, timeout=_NEWS_S)
            if watching.done():
                return watching.result()
            host, port = self._owner.address
            return away(f"{host}:{port} ended the connection, and with it the claim")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self) -> SidecarError:
        now = asyncio.get_running_loop().time
        while now() < (until := self.heard + self._silence):
            try:
                if (lost := await self._look(self._patience_ms, until)) is not None:
                    return lost
            except SidecarUnavailableError:
                await asyncio.sleep(_AGAIN_S)
        return away(f"no node vouched for the claim for {self._silence:g} s")

    async def _look(self, wait_ms: int, until: float) -> SidecarError | None:
        """Send one Watch. Returns why the claim is lost, or None if it is still owned. Raises `SidecarUnavailableError`
        if no node answers until `until`.
        """
        now = asyncio.get_running_loop().time
        assert self._owner is not None, "it was granted"
        if self._watcher is None or not self._watcher.is_open:
            self._watcher = await connect(self._owner.address, self._asked.producer_name, until - now(), self._access)
        sent = now()
        answer = await self._watcher.call(Watch(control.WatchRequest(token=self._token, wait_ms=wait_ms)), until - sent)
        if answer.error == control.UNAVAILABLE or now() > until:
            raise of_own(control.UNAVAILABLE, answer.message)
        if answer.error not in (control.NONE, control.TIMED_OUT):
            return _lost(answer.error, answer.message)
        for each in answer.changed:
            if each.error != control.NONE:
                return _lost(each.error, each.message)
            self._note(each)
        self.heard = sent
        return None

    def _note(self, found: control.Ownership) -> None:
        self.generation = found.generation
        self.fencing_token = max(self.fencing_token, found.fencing_token)

    # Ending ---------------------------------------------------------------------------------------------------------

    async def release(self) -> None:
        """Release the claim and wait until the node confirms it; `close` releases it without waiting."""
        if self._owner is not None and self._owner.is_open:
            with contextlib.suppress(SidecarError):
                await self._owner.call(
                    Release(control.ReleaseRequest(group=self._asked.group, token=self._token)), _SHORT_S
                )

    async def close(self) -> None:
        """End both connections, and with them the claim."""
        connections = [each for each in (self._watcher, self._owner) if each is not None]
        self._watcher = self._owner = None
        for each in connections:
            each.drop()
        for each in connections:
            await each.close()

    # Connections ----------------------------------------------------------------------------------------------------

    async def _connected(self) -> Connection:
        if self._owner is not None and self._owner.is_open:
            return self._owner
        await self.close()
        try:
            self._owner = await first(self._candidates(), self._open)
        except SidecarUnavailableError:
            self._first = None
            raise
        self._token = os.urandom(_TOKEN_BYTES)
        return self._owner

    async def _open(self, address: Address) -> Connection:
        connection = await connect(address, self._asked.producer_name, min(_SHORT_S, self._timeout), self._access)
        try:
            self._nodes = (await connection.call(DescribeTopics(()), min(_SHORT_S, self._timeout))).brokers
        except BaseException:
            await connection.close()
            raise
        return connection

    def _candidates(self) -> list[Address]:
        """The addresses of possible nodes, the most likely one first; the address that was left last is the last."""
        known = dict.fromkeys((*self._nodes.values(), *self._bootstrap))
        first = [] if self._first is None else [self._first]
        rest = [each for each in known if each not in (self._first, self._last)]
        return [*first, *rest, *([self._last] if self._last in known and self._last != self._first else [])]

    async def _leave(self, to: Address | None = None) -> None:
        """Close the connection, which ends the claim or its place in the queue. The next attempt begins at `to`, or at
        another node if there is one.
        """
        if self._owner is not None:
            self._last = self._owner.address
        self._first = to
        await self.close()


def _lost(code: int, message: str) -> SidecarError:
    found = of_own(code, message)
    if isinstance(found, ProducerFencedError):
        return found
    return ProducerFencedError(found.code, message or "the claim is not known any more")
