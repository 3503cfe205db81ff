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

from sidecar.client.sync.admin import AdminClient
from sidecar.client.sync.leadership import Leadership
from sidecar.client.sync.producer import ExclusiveProducer
from sidecar.client.sync.reader import ShadowReader

__all__ = ["AdminClient", "ExclusiveProducer", "Leadership", "ShadowReader"]
