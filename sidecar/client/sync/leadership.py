"""The synchronous twin of `sidecar.client.leadership`: written by `python -m tools.sync`, not by hand."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Self, Unpack

from sidecar.client.access import AccessParameters
from sidecar.client.errors import SidecarError
from sidecar.client.leadership import Leadership as _Leadership
from sidecar.client.names import Mode
from sidecar.client.sync.twin import LosableTwin


class Leadership(LosableTwin["_Leadership"]):
    """Owns a name that all nodes agree on, and so leads; nobody else does until it lets go or loses it.

    ```python
    from sidecar.client.sync import Leadership

    def step() -> bool:
        return False  # a bit of what only one may do at a time: whether there is more

    with Leadership("localhost:19092", "scheduler", name="host-1") as leadership:
        print(leadership.generation)
        while leadership.is_leader and step():
            pass
    ```

    `bootstrap` is `host:port,…` of nodes, or several of them. What is claimed is `resource`, any string; or `topic=`,
    all of it or its `partition=`, for writing: then no other producer writes there. With `group=` a topic or partition
    is claimed for reading in this group, and a string in the group's own room. `name` is who this is, for people; a
    consumer that reads under a claim bears it as its client.id (Kafka wiki, Single Reader/Writer). Without one a
    globally unique name is assigned.

    `mode`, where somebody else owns it or waits for it: `exclusive` raises `ProducerBusyError`, `wait_for_exclusive`
    waits as long as it takes, in the order in which they came, `exclusive_with_fencing` takes it away, and those that
    wait get a `ProducerFencedError`. With a `generation` nobody waits: it is taken from an owner whose generation is
    equal or lower, else that is a `ProducerBusyError`; 0 always wins.

    `generation` distinguishes one owner from the next, not for ever: that of a string, or of reading, begins again with
    1 once nobody owned it. That of a topic for writing never falls. `fencing_token` never falls for anything.

    **What `lost()` reports.** The claim belongs to a connection and ends with it: when this process dies, and when the
    node does. It is never taken back; lead again by a new `Leadership`. `lost()` returns at once where somebody takes
    the claim, an administrator does or the node dies. A node that is silent, or a network in between, says nothing:
    then `lost()` returns, and `is_leader` turns False, `silence` seconds after the last question that the node answered
    was sent. The claim may be another's before that: a node that does not renew its lease (3 s) is replaced.
    A process that is stalled does not see that, and cannot stop what it has already sent elsewhere. So let what leads
    *write* through something that refuses an old leader: an `ExclusiveProducer`, whose topic takes nothing of a former
    owner, or a store that is given the `fencing_token` with each write and refuses a lower one than it has seen.

    `timeout` (seconds) bounds how long `with` tries while no node answers; waiting for others does not count.
    While it waits it goes on to other nodes by itself; its place in the queue belongs to its connection, so that with
    a new one it stands last. Use it once, from as many threads as you like.

    Nodes that have TLS or ask for a login take aiokafka's parameters, each by its name: `security_protocol` (by default
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
        super().__init__(
            _Leadership(
                bootstrap,
                resource,
                name=name,
                mode=mode,
                topic=topic,
                partition=partition,
                group=group,
                generation=generation,
                timeout=timeout,
                silence=silence,
                **access,
            )
        )

    @property
    def name(self) -> str:
        """Who leads, given or assigned."""
        return self._call(lambda: self._twin.name)

    @property
    def generation(self) -> int:
        """The generation under which the claim is or was owned; 0 before."""
        return self._call(lambda: self._twin.generation)

    @property
    def fencing_token(self) -> int:
        """For what it writes outside of Kafka, to a store that refuses a lower token than it has seen: higher than that
        of every owner before, whatever was let go of, restarted or emptied in between (Redis, too). A whole number, to
        be compared and nothing else. 0 before, and from a node of an earlier version, which gives none.

        It falls only where Kafka itself went back: a log that was created anew while the brokers' clock was behind the
        former one's, records lost by an unclean election; that of a topic for writing, which is its generation, where
        the ownership topic and Redis are lost together.

        ```python
        from sidecar.client.sync import Leadership

        highest: dict[str, int] = {}  # in the store: UPDATE ... SET token = $1 WHERE token <= $1

        def write(resource: str, token: int) -> bool:
            if token < highest.get(resource, 0):
                return False  # somebody leads who came later
            highest[resource] = token
            return True

        def main() -> None:
            with Leadership("localhost:19092", "scheduler", name="host-1") as leadership:
                print(write("scheduler", leadership.fencing_token))

        main()
        ```
        """
        return self._call(lambda: self._twin.fencing_token)

    @property
    def is_leader(self) -> bool:
        """Whether the claim is owned, as far as a node answered within `silence`; once False, for ever. See the class
        for what that leaves open.
        """
        return self._call(lambda: self._twin.is_leader)

    @property
    def error(self) -> SidecarError | None:
        """Why it was lost: `ProducerFencedError` where it was taken, `SidecarUnavailableError` where the connection
        ended or the node was silent; None before, and where it was let go of.
        """
        return self._call(lambda: self._twin.error)

    def start(self) -> None:
        """Own it, as `with` does. Raises `ProducerBusyError`; `ProducerFencedError` where somebody took it by
        force from all that waited; `SidecarUnavailableError`; `SidecarError` with an `OwnError` for what cannot be
        claimed. Whatever it raises, or interrupted: nothing stays open, and nothing owned.
        """
        return self._start(self._twin.start)

    def close(self) -> None:
        """Let go of it; returns when it is free for others, where the node answers. Repeating it is harmless."""
        self._finish(self._twin.close)

    def __enter__(self) -> Self:
        self._start(self._twin.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finish(lambda: self._twin.__aexit__(kind, error, trace))
