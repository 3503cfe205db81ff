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

from typing import Self

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

    @reads(_ExclusiveProducer, lambda twin: twin.name)
    def name(self) -> None: ...

    @reads(_ExclusiveProducer, lambda twin: twin.topic)
    def topic(self) -> None: ...

    @reads(_ExclusiveProducer, lambda twin: twin.partitions)
    def partitions(self) -> None: ...

    @reads(_ExclusiveProducer, lambda twin: twin.generation)
    def generation(self) -> None: ...

    @reads(_ExclusiveProducer, lambda twin: twin.last_sequence_id)
    def last_sequence_id(self) -> None: ...

    @reads(_ExclusiveProducer, lambda twin: twin.last_sequence_ids)
    def last_sequence_ids(self) -> None: ...

    @blocks(_ExclusiveProducer.send)
    def send(self) -> None: ...

    @blocks(_ExclusiveProducer.send_all)
    def send_all(self) -> None: ...

    @starts(_ExclusiveProducer.start)
    def start(self) -> None: ...

    @ends(_ExclusiveProducer.close)
    def close(self) -> None: ...


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

    @reads(_Leadership, lambda twin: twin.name)
    def name(self) -> None: ...

    @reads(_Leadership, lambda twin: twin.generation)
    def generation(self) -> None: ...

    @reads(_Leadership, lambda twin: twin.fencing_token)
    def fencing_token(self) -> None: ...

    @reads(_Leadership, lambda twin: twin.is_leader)
    def is_leader(self) -> None: ...

    @reads(_Leadership, lambda twin: twin.error)
    def error(self) -> None: ...

    @starts(_Leadership.start)
    def start(self) -> None: ...

    @ends(_Leadership.close)
    def close(self) -> None: ...


class ShadowReader(Twin["_ShadowReader"], of=_ShadowReader):
    """`sidecar.client.ShadowReader` for programs that block."""

    @makes(_ShadowReader)
    def __init__(self) -> None: ...

    @reads(_ShadowReader, lambda twin: twin.shadow)
    def shadow(self) -> None: ...

    @reads(_ShadowReader, lambda twin: twin.group)
    def group(self) -> None: ...

    @reads(_ShadowReader, lambda twin: twin.partitions)
    def partitions(self) -> None: ...

    @ends(_ShadowReader.close)
    def close(self) -> None: ...

    @blocks(_ShadowReader.read_available)
    def read_available(self) -> None: ...

    @blocks(_ShadowReader.commit)
    def commit(self) -> None: ...

    @blocks(_ShadowReader.lag)
    def lag(self) -> None: ...

    @calls(_ShadowReader.seek)
    def seek(self) -> None: ...

    @blocks(_ShadowReader.seek_to_beginning)
    def seek_to_beginning(self) -> None: ...

    @blocks(_ShadowReader.seek_to_end)
    def seek_to_end(self) -> None: ...

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

    @reads(_AdminClient, lambda twin: twin.url)
    def url(self) -> None: ...

    @ends(_AdminClient.close)
    def close(self) -> None: ...

    @blocks(_AdminClient.status)
    def status(self) -> None: ...

    @iterates(_AdminClient.clients)
    def clients(self) -> None: ...

    @blocks(_AdminClient.settings)
    def settings(self) -> None: ...

    @iterates(_AdminClient.events)
    def events(self) -> None: ...

    @blocks(_AdminClient.refusals)
    def refusals(self) -> None: ...

    @iterates(_AdminClient.topics)
    def topics(self) -> None: ...

    @blocks(_AdminClient.topic)
    def topic(self) -> None: ...

    @iterates(_AdminClient.partitions)
    def partitions(self) -> None: ...

    @iterates(_AdminClient.groups)
    def groups(self) -> None: ...

    @blocks(_AdminClient.last_records)
    def last_records(self) -> None: ...

    @blocks(_AdminClient.create_topic)
    def create_topic(self) -> None: ...

    @blocks(_AdminClient.set_policy)
    def set_policy(self) -> None: ...

    @blocks(_AdminClient.delete_policy)
    def delete_policy(self) -> None: ...

    @blocks(_AdminClient.delete_topic)
    def delete_topic(self) -> None: ...

    @blocks(_AdminClient.fence)
    def fence(self) -> None: ...

    @blocks(_AdminClient.release)
    def release(self) -> None: ...

    @blocks(_AdminClient.producers)
    def producers(self) -> None: ...

    @blocks(_AdminClient.producer)
    def producer(self) -> None: ...

    @blocks(_AdminClient.forget_producer)
    def forget_producer(self) -> None: ...

    @blocks(_AdminClient.shadows)
    def shadows(self) -> None: ...

    @blocks(_AdminClient.shadow)
    def shadow(self) -> None: ...

    @blocks(_AdminClient.create_shadow)
    def create_shadow(self) -> None: ...

    @blocks(_AdminClient.change_shadow)
    def change_shadow(self) -> None: ...

    @blocks(_AdminClient.delete_shadow)
    def delete_shadow(self) -> None: ...

    @iterates(_AdminClient.cursors)
    def cursors(self) -> None: ...

    @blocks(_AdminClient.reset_cursor)
    def reset_cursor(self) -> None: ...
