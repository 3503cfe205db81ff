"""The SDK for programs that block: the classes of `sidecar.client` under the same names, with the same methods.

```python
from sidecar.client.sync import ExclusiveProducer

with ExclusiveProducer("localhost:19092", topic="orders", name="billing") as producer:
    print(producer.send(b"paid", key=b"order-17"))
```

Errors, receipts and facts are those of `sidecar.client`. Each object has a thread of its own for its event loop, from
`with` to its end. Every thread may call it; a call that is interrupted (Ctrl-C) is cancelled. What is still open when
the interpreter exits is closed, for 5 seconds at most. Make it behind a fork: in a forked child those of the parent
raise RuntimeError, and the parent's connections stay open there until the child ends, which keeps what they own.
"""

from __future__ import annotations

from typing import Final, Self

from aiokafka import ConsumerRecord

from sidecar.client.admin import AdminClient as _AdminClient
from sidecar.client.leadership import Leadership as _Leadership
from sidecar.client.producer import ExclusiveProducer as _ExclusiveProducer
from sidecar.client.reader import ShadowReader as _ShadowReader
from sidecar.client.sync.twin import LosableTwin, Twin, blocks, calls, ends, iterates, makes, reads, starts

__all__ = ["AdminClient", "ExclusiveProducer", "Leadership", "ShadowReader"]


class ExclusiveProducer(LosableTwin["_ExclusiveProducer"], of=_ExclusiveProducer):
    """`sidecar.client.ExclusiveProducer` for programs that block."""

    @makes(_ExclusiveProducer)
    def __init__(self) -> None: ...

    name: Final = reads(_ExclusiveProducer, lambda twin: twin.name)
    topic: Final = reads(_ExclusiveProducer, lambda twin: twin.topic)
    partitions: Final = reads(_ExclusiveProducer, lambda twin: twin.partitions)
    generation: Final = reads(_ExclusiveProducer, lambda twin: twin.generation)
    last_sequence_id: Final = reads(_ExclusiveProducer, lambda twin: twin.last_sequence_id)
    last_sequence_ids: Final = reads(_ExclusiveProducer, lambda twin: twin.last_sequence_ids)
    send: Final = blocks(_ExclusiveProducer.send)
    send_all: Final = blocks(_ExclusiveProducer.send_all)
    start: Final = starts(_ExclusiveProducer.start)
    close: Final = ends(_ExclusiveProducer.close)


class Leadership(LosableTwin["_Leadership"], of=_Leadership):
    """`sidecar.client.Leadership` for programs that block.

    ```python
    from sidecar.client.sync import Leadership

    def step() -> bool:
        return False  # a bit of what only one may do at a time: whether there is more

    with Leadership("localhost:19092", "scheduler", name="host-1") as leadership:
        print(leadership.generation)
        while leadership.is_leader and step():
            pass
    ```
    """

    @makes(_Leadership)
    def __init__(self) -> None: ...

    name: Final = reads(_Leadership, lambda twin: twin.name)
    generation: Final = reads(_Leadership, lambda twin: twin.generation)
    fencing_token: Final = reads(_Leadership, lambda twin: twin.fencing_token)
    is_leader: Final = reads(_Leadership, lambda twin: twin.is_leader)
    error: Final = reads(_Leadership, lambda twin: twin.error)
    start: Final = starts(_Leadership.start)
    close: Final = ends(_Leadership.close)


class ShadowReader(Twin["_ShadowReader"], of=_ShadowReader):
    """`sidecar.client.ShadowReader` for programs that block."""

    @makes(_ShadowReader)
    def __init__(self) -> None: ...

    shadow: Final = reads(_ShadowReader, lambda twin: twin.shadow)
    group: Final = reads(_ShadowReader, lambda twin: twin.group)
    partitions: Final = reads(_ShadowReader, lambda twin: twin.partitions)
    close: Final = ends(_ShadowReader.close)
    read_available: Final = blocks(_ShadowReader.read_available)
    commit: Final = blocks(_ShadowReader.commit)
    lag: Final = blocks(_ShadowReader.lag)
    seek: Final = calls(_ShadowReader.seek)
    seek_to_beginning: Final = blocks(_ShadowReader.seek_to_beginning)
    seek_to_end: Final = blocks(_ShadowReader.seek_to_end)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord[bytes | None, bytes | None]:
        """The next record; waits for one as long as it takes. Interrupting it loses none."""
        try:
            return self._run(self._twin.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None


class AdminClient(Twin["_AdminClient"], of=_AdminClient):
    """`sidecar.client.AdminClient` for programs that block."""

    @makes(_AdminClient)
    def __init__(self) -> None: ...

    url: Final = reads(_AdminClient, lambda twin: twin.url)
    close: Final = ends(_AdminClient.close)
    status: Final = blocks(_AdminClient.status)
    clients: Final = iterates(_AdminClient.clients)
    settings: Final = blocks(_AdminClient.settings)
    events: Final = iterates(_AdminClient.events)
    refusals: Final = blocks(_AdminClient.refusals)
    topics: Final = iterates(_AdminClient.topics)
    topic: Final = blocks(_AdminClient.topic)
    partitions: Final = iterates(_AdminClient.partitions)
    groups: Final = iterates(_AdminClient.groups)
    last_records: Final = blocks(_AdminClient.last_records)
    create_topic: Final = blocks(_AdminClient.create_topic)
    set_policy: Final = blocks(_AdminClient.set_policy)
    delete_policy: Final = blocks(_AdminClient.delete_policy)
    delete_topic: Final = blocks(_AdminClient.delete_topic)
    fence: Final = blocks(_AdminClient.fence)
    release: Final = blocks(_AdminClient.release)
    producers: Final = blocks(_AdminClient.producers)
    producer: Final = blocks(_AdminClient.producer)
    forget_producer: Final = blocks(_AdminClient.forget_producer)
    shadows: Final = blocks(_AdminClient.shadows)
    shadow: Final = blocks(_AdminClient.shadow)
    create_shadow: Final = blocks(_AdminClient.create_shadow)
    change_shadow: Final = blocks(_AdminClient.change_shadow)
    delete_shadow: Final = blocks(_AdminClient.delete_shadow)
    cursors: Final = iterates(_AdminClient.cursors)
    reset_cursor: Final = blocks(_AdminClient.reset_cursor)
