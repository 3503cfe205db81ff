"""The SDK for Python: producers that own their topic, leadership, readers of shadow topics, the admin port of nodes.

```python
import asyncio
from sidecar.client import ExclusiveProducer

async def main() -> None:
    async with ExclusiveProducer("localhost:19092", topic="orders", name="billing") as producer:
        print(await producer.send(b"paid", key=b"order-17"))

asyncio.run(main())
```
"""

from sidecar.client.admin import AdminClient
from sidecar.client.creation import NewTopic
from sidecar.client.errors import (
    OwnError,
    ProducerBusyError,
    ProducerFencedError,
    SequenceError,
    SidecarError,
    SidecarUnavailableError,
)
from sidecar.client.leadership import Leadership
from sidecar.client.names import Mode
from sidecar.client.producer import ExclusiveProducer
from sidecar.client.reader import ShadowReader
from sidecar.client.receipt import Receipt, Record

__all__ = [
    "AdminClient",
    "ExclusiveProducer",
    "Leadership",
    "Mode",
    "NewTopic",
    "OwnError",
    "ProducerBusyError",
    "ProducerFencedError",
    "Receipt",
    "Record",
    "SequenceError",
    "ShadowReader",
    "SidecarError",
    "SidecarUnavailableError",
]
