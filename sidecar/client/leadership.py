"""Leadership: one of many processes leads, because it owns a name, a topic, or a group's reading of a topic.

Decides nothing by itself: `_own_claim` claims, waits and watches. This class starts and ends that once, for one
application.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self, Unpack

from sidecar.client._own_claim import OwnClaim
from sidecar.client.access import AccessParameters, NodeAccess
from sidecar.client.errors import SidecarError
from sidecar.client.names import MODES, Mode, assigned_name, check_mode, checked_name
from sidecar.protocol.addresses import addresses
from sidecar.v1 import control_pb2 as control

_LEAST_SILENCE_S: Final = 1.0
_HIGHEST: Final = 2**63 - 1


class Leadership:
    """Owns a name that all nodes agree on, and so leads. No other process leads until this one releases or loses it.

    ```python
    import asyncio
    from sidecar.client import Leadership

    async def lead() -> None:
        await asyncio.sleep(0.1)  # what only one may do at a time

    async def main() -> None:
        async with Leadership("localhost:19092", "scheduler", name="host-1") as leadership:
            print(leadership.generation)
            work, lost = asyncio.create_task(lead()), asyncio.create_task(leadership.lost())
            await asyncio.wait({work, lost}, return_when=asyncio.FIRST_COMPLETED)
            for task in (work, lost):
                task.cancel()

    asyncio.run(main())
    ```

    `bootstrap` is `host:port,…` of nodes, or several of them. What is claimed is `resource`, any string; or `topic=`,
    all of it or its `partition=`, for writing: then no other producer writes there. With `group=` a topic or partition
    is claimed for reading in this group, and a string belongs to the group alone. `name` identifies this process to
    people; a consumer that reads under a claim has it as its client.id (Kafka wiki, Single Reader/Writer). Without one
    a globally unique name is assigned.

    `mode`, where somebody else owns it or waits for it: `exclusive` raises `ProducerBusyError`, `wait_for_exclusive`
    waits without a limit, in the order of requests, and `exclusive_with_fencing` takes it away; those that wait get a
    `ProducerFencedError`. With a `generation` nobody waits: the claim is taken from an owner whose generation is equal
    or lower, otherwise `ProducerBusyError` is raised; 0 always wins.

    `generation` distinguishes one owner from the next, but not for ever: for a string, and for reading, it begins again
    with 1 once nobody owned it. For writing to a topic it never falls. `fencing_token` never falls for anything.

    **What `lost()` reports.** The claim belongs to a connection and ends with it: when this process dies, and when the
    node does. It is never taken back; lead again by a new `Leadership`. `lost()` returns at once when another
    client or an administrator takes the claim, and when the node dies. A frozen node or a cut network sends nothing:
    then `lost()` returns, and `is_leader` becomes False, `silence` seconds after the last question that the node
    answered was sent. Another process may own the claim before that: a node that does not renew its lease (3 s) is
    replaced. A stalled process does not notice this, and cannot take back what it has already sent elsewhere. So a
    leader should *write* through something that refuses an old leader: an `ExclusiveProducer`, whose topic refuses a
    former owner, or a store that gets the `fencing_token` with each write and refuses a lower one than it has seen.

    `timeout` (seconds) bounds how long `async with` tries while no node answers; waiting for others does not count.
    While it waits it connects to other nodes by itself. Its place in the queue belongs to its connection: on a new
    connection it is last. Use it in one event loop, once.

    For nodes with TLS or a login there are aiokafka's parameters, under their names: `security_protocol` (by default
    `PLAINTEXT`), `ssl_context`, `sasl_mechanism` (`PLAIN`), `sasl_plain_username`, `sasl_plain_password`,
    `sasl_oauth_token_provider`.
    """

    def __init__(
        self,
        bootstrap: str | Iterable[str],
        resource: str | None = None,
        *,
        name: str | None = None,
        mode: Mode = "wait_for_exclusive",
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        generation: int | None = None,
        timeout: float = 30.0,
        silence: float = 10.0,
        **access: Unpack[AccessParameters],
    ) -> None:
        check_mode(mode)
        if timeout <= 0:
            raise ValueError(f"timeout is {timeout:g} s")
        if silence < _LEAST_SILENCE_S:
            raise ValueError(f"silence is {silence:g} s, less than {_LEAST_SILENCE_S:g}")
        if generation is not None and not 0 <= generation <= _HIGHEST:
            raise ValueError(f"generation {generation} is out of range: 0 to 2^63-1")
        if group == "":
            raise ValueError("group is empty: name one, or None for writing and for names")
        self._name: str = assigned_name() if name is None else checked_name(name)
        asked = control.OwnRequest(
            group=group or "",
            claims=[control.Claim(resource=_resource(resource, topic, partition), generation=generation)],
            mode=MODES[mode],
            producer_name=self._name,
            producer_id=-1,
        )
        self._claim = OwnClaim(addresses(bootstrap), asked, timeout, silence, NodeAccess(**access))
        self._started = False
        self._leads = False
        self._error: SidecarError | None = None
        self._over = asyncio.Event()
        self._taking: asyncio.Task[bool] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None

    # What it knows --------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name of this process, given or assigned."""
        return self._name

    @property
    def generation(self) -> int:
        """The generation under which the claim is or was owned; 0 before."""
        return self._claim.generation

    @property
    def fencing_token(self) -> int:
        """A number to send with writes outside of Kafka, to a store that refuses a lower one than it has seen. It is
        higher than that of every owner before, whatever was released, restarted or emptied in between, Redis included.
        Compare it and do nothing else with it. 0 before the claim is owned, and from a node of an earlier version.

        It falls only if Kafka itself lost data: if a log was created again while the brokers' clock was behind the
        former one's, or an unclean election lost records. For writing to a topic it is the generation, which falls if
        the ownership topic and Redis are lost together.

        ```python
        import asyncio
        from sidecar.client import Leadership

        highest: dict[str, int] = {}  # in the store: UPDATE ... SET token = $1 WHERE token <= $1

        def write(resource: str, token: int) -> bool:
            if token < highest.get(resource, 0):
                return False  # a later leader has written
            highest[resource] = token
            return True

        async def main() -> None:
            async with Leadership("localhost:19092", "scheduler", name="host-1") as leadership:
                print(write("scheduler", leadership.fencing_token))

        asyncio.run(main())
        ```
        """
        return self._claim.fencing_token

    @property
    def is_leader(self) -> bool:
        """Whether the claim is owned, and a node confirmed it within `silence` seconds. Once False, it stays False. The
        class says what that cannot show.
        """
        return self._leads and self._claim.is_fresh

    @property
    def error(self) -> SidecarError | None:
        """Why the claim was lost: `ProducerFencedError` if it was taken, `SidecarUnavailableError` if the connection
        ended or the node did not answer; None before that, and after a release.
        """
        return self._error

    async def lost(self) -> None:
        """Return when this process no longer leads: the claim was lost (`error` says why), or `close` was called."""
        await self._over.wait()

    # Life -----------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take the claim, as `async with` does. Raises `ProducerBusyError`; `ProducerFencedError` if another client
        took it with fencing while this one waited; `SidecarUnavailableError`; `SidecarError` with an `OwnError` for
        what cannot be claimed. When it raises or is cancelled, nothing stays open or owned.
        """
        if self._started:
            raise RuntimeError("a leadership is used once: create another one")
        self._started = True
        self._taking = asyncio.create_task(self._take())
        try:
            closed = await self._taking
        except BaseException:
            self._end()
            await self._claim.close()
            raise
        if closed or self._ending is not None:
            raise RuntimeError("the leadership was closed before it began")
        self._leads = True
        self._keeper = asyncio.create_task(self._keep())

    async def close(self) -> None:
        """Release the claim. Returns when it is free for others, if the node answers. Repeating it is harmless."""
        self._started = True
        if self._ending is None:
            self._ending = asyncio.create_task(self._shut())
        try:
            await asyncio.shield(self._ending)
        except asyncio.CancelledError:
            await self._claim.close()
            await asyncio.wait({self._ending})
            raise

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _take(self) -> bool:
        """Returns whether it was closed meanwhile."""
        try:
            await self._claim.take()
        except asyncio.CancelledError:
            if self._ending is None:
                raise
            return True
        return False

    async def _keep(self) -> None:
        error = await self._claim.keep()
        self._error = error
        self._end()
        await self._claim.close()

    async def _shut(self) -> None:
        self._end()
        for task in (self._taking, self._keeper):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})
        try:
            await self._claim.release()
        finally:
            await self._claim.close()

    def _end(self) -> None:
        self._leads = False
        self._over.set()


def _resource(name: str | None, topic: str | None, partition: int | None) -> control.Resource:
    if (name is None) is (topic is None):
        raise ValueError("name either a resource or a topic")
    if name == "" or topic == "":
        raise ValueError("the resource is empty" if name == "" else "the topic is empty")
    if partition is not None and (topic is None or partition < 0):
        raise ValueError(f"partition {partition} is invalid: a topic's partitions are numbered from 0")
    return control.Resource(name=name, topic=topic, partition=partition)
