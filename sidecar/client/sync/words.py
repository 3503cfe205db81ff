"""Docstrings of the asynchronous classes as those of their twins: a program that blocks awaits nothing. Pure."""

from __future__ import annotations

import inspect
import re
from typing import Final

_WORDS: Final = (
    ("Use it in one event loop, once.", "Use it once, from as many threads as you like."),
    ("Cancelling it loses none.", "Interrupting it loses none."),
    ("Cancelled, it does so at once.", "Interrupted, at once."),
    ("Several may be awaited at once:", "Threads may call it at once:"),
    ("Cancelled, it takes back", "Interrupted, it takes back"),
    ("A cancelled `send` takes", "An interrupted `send` takes"),
    ("or cancelled: nothing", "or interrupted: nothing"),
    ("async with", "with"),
    ("async for", "for"),
    ("import asyncio\n", ""),
    ("from contextlib import aclosing", "from contextlib import closing"),
    ("aclosing(", "closing("),
    ("from sidecar.client import", "from sidecar.client.sync import"),
    (
        "from sidecar.client.sync import ExclusiveProducer, Receipt, Record",
        "from sidecar.client import Receipt, Record\nfrom sidecar.client.sync import ExclusiveProducer",
    ),
    ("async def", "def"),
    ("asyncio.run(main())", "main()"),
    ("await ", ""),
)
_AWAITED: Final = re.compile(r"(?<!\w)\(await ([^()]*\([^()]*\))\)")
_EXAMPLE: Final = re.compile(r"```python\n.*?```", re.DOTALL)


def blocking(text: str | None) -> str:
    """A docstring for programs that block."""
    found = _AWAITED.sub(r"\1", inspect.cleandoc(text or ""))
    for word, instead in _WORDS:
        found = found.replace(word, instead)
    return found


def with_example(text: str | None, own: str | None) -> str:
    """`text` with the example in `own` in place of its first one, where there is one in `own`."""
    found, example = inspect.cleandoc(text or ""), _EXAMPLE.search(inspect.cleandoc(own or ""))
    return found if example is None else _EXAMPLE.sub(lambda _: example[0], found, count=1)
