"""docs/reference/sdk.md from the docstrings of `sidecar.client` and the tables of its errors."""

from __future__ import annotations

import dataclasses
import inspect
from typing import TYPE_CHECKING, Any, Final, get_args

import sidecar.client
from docs.generate import markdown
from sidecar.client import (
    AdminClient,
    ExclusiveProducer,
    Leadership,
    Mode,
    NewTopic,
    Receipt,
    Record,
    ShadowReader,
    facts,
)
from sidecar.client.errors import OF_HTTP, OF_KAFKA, OF_OWN, SidecarError
from sidecar.protocol.errors import error_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sidecar.client.errors import Meaning

_CLASSES: Final = (ExclusiveProducer, Leadership, ShadowReader, AdminClient)
_ERRORS: Final = tuple(
    found
    for name in sidecar.client.__all__
    if isinstance(found := getattr(sidecar.client, name), type) and issubclass(found, SidecarError)
)
_BEFORE: Final = """
    `sidecar.client` has classes for asyncio, built on [aiokafka](https://aiokafka.readthedocs.io);
    `sidecar.client.sync` has the same for blocking programs. Install with `uv build` and `pip install
    dist/kafka_sidecar-*.whl` (no package is published yet). Needs Python 3.11 or newer; fully typed (`py.typed`).

    Where Kafka's ACLs are enforced, an `ExclusiveProducer` needs WRITE and ALTER on its topic, in every mode: it names
    the generation of its claim ([what clients may do](../operate/access.md); with `SIDECAR_TAKE_OVER_OPERATION=WRITE`
    WRITE is enough).

    In addition to an ordinary client, the classes own a topic before they write, report its loss even while idle, and
    never take a lost topic back. If an answer is lost, they send the record again under its id. Ordinary clients work
    without the library: [client.id](client-id.md). For other languages see [own APIs](own-apis.md).
    """
_RECOVERY: Final = (
    (
        "a connection breaks, a node dies",
        "it reconnects with its session and sends unanswered records again: nothing is lost, repeated or reordered",
        "it is lost: its claim belonged to the connection. The first process in the queue leads, at another node",
    ),
    (
        "another session took it, or an administrator fenced it",
        "`lost()` returns at once, every later `send` raises `ProducerFencedError`",
        "`lost()` returns at once, `error` names the new owner",
    ),
    (
        "a node or the network does not respond",
        "`send` raises `SidecarUnavailableError` after `timeout`; repeating it with its `sequence_id` is safe",
        "`lost()` returns `silence` seconds after the last answer; another process may lead before that",
    ),
    (
        "the program is paused and resumes",
        "its records are refused if another session owned the topic meanwhile",
        "`is_leader` is False at once if the pause was longer than `silence`",
    ),
    (
        "the program dies",
        "the topic is free at once, and its next owner continues after `last_sequence_id`",
        "the first process in the queue leads at once",
    ),
    (
        "Kafka forgot the session's sequences (45 OUT_OF_ORDER_SEQUENCE_NUMBER)",
        "a new session continues under the next generation; records without a sequence id that may be in the log fail",
        "",
    ),
    ("Redis does not answer", "owners continue to write; new claims wait", "leaders continue to lead"),
)
_SYNC: Final = """
    `from sidecar.client.sync import ExclusiveProducer, Leadership, ShadowReader, AdminClient`: the same
    constructors, methods, types and errors, without `await`; `with` for `async with`, `for` for `async for`.
    `lost(timeout=None)` waits for the loss for `timeout` seconds, and returns whether it happened.

    Each object has its own thread for its event loop, from `with` (or `start`) to its end. Any thread may call it; a
    call that is interrupted by Ctrl-C is cancelled, and has ended when KeyboardInterrupt is raised. An object that is
    still open is closed when it is garbage-collected or the interpreter exits, within 5 seconds. Create objects after
    a fork: in a child, objects of the parent raise RuntimeError. The child also has the parent's connections open, so
    the resources of these objects are free only when both processes have ended.
    """


def page() -> str:
    """The classes, their errors, and what becomes of them when things break."""
    lines = ["# SDK for Python", "", *markdown.note("the docstrings of `sidecar.client`"), *markdown.prose(_BEFORE)]
    for found in _CLASSES:
        lines += _class(found)
    lines += ["## What breaks", "", *markdown.table(("what", "`ExclusiveProducer`", "`Leadership`"), _RECOVERY), ""]
    lines += ["## Errors", "", *_docstring(SidecarError), *_errors()]
    lines += ["## `sidecar.client.sync`", "", *markdown.prose(_SYNC)]
    modes = ", ".join(f"`{each}`" for each in get_args(Mode))
    lines += ["## `Mode`", "", f"{modes}: what they mean is in [client.id](client-id.md#modes).", ""]
    for value in (NewTopic, Record, Receipt):
        lines += [f"## `{value.__name__}`", "", f"`{_fields(value)}`", "", *_docstring(value)]
    lines += ["## `sidecar.client.facts`", "", *_docstring(facts)]
    rows = [
        (f"`{name}`", f"`{_fields(found)}`", _line(found))
        for name, found in vars(facts).items()
        if dataclasses.is_dataclass(found) and isinstance(found, type)
    ]
    return markdown.page([*lines, *markdown.table(("class", "fields", "meaning"), rows)])


def _class(found: type[Any]) -> Iterator[str]:
    yield from (f"## `{found.__name__}`", "", f"`{found.__name__}{_signature(found)}`", "", *_docstring(found))
    for name, member in vars(found).items():
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            yield from (f"### `{name}`", "", *_docstring(member))
        else:
            awaited = "await " if inspect.iscoroutinefunction(member) else ""
            awaited = "async for … in " if inspect.isasyncgenfunction(member) else awaited
            yield from (f"### `{awaited}{name}{_signature(member)}`", "", *_docstring(member))


class _Type:
    """An annotation that is shown as it stands in the source."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _signature(found: Any) -> str:
    """Without `self`."""
    signature = inspect.signature(found)
    parameters = [
        each.replace(annotation=_Type(each.annotation)) for name, each in signature.parameters.items() if name != "self"
    ]
    returns = signature.return_annotation
    shown = signature.replace(parameters=parameters, return_annotation=_Type(returns) if returns != "None" else None)
    return str(shown).removesuffix(" -> None")


def _docstring(found: Any) -> list[str]:
    """Prose with each paragraph on one line; examples as they are."""
    lines: list[str] = []
    for number, part in enumerate(inspect.cleandoc(found.__doc__ or "").split("```")):
        if number % 2:
            lines += [f"```{part.rstrip()}", "```", ""]
        else:
            lines += markdown.prose(part) if part.strip() else []
    return lines


def _fields(found: type[Any]) -> str:
    return ", ".join(each.name for each in dataclasses.fields(found))


def _errors() -> Iterator[str]:
    meanings = [(f"`{each.__name__}`", _line(each)) for each in _ERRORS if each is not SidecarError]
    yield from markdown.table(("error", "meaning"), meanings)
    rows: list[tuple[str, str, str, str]] = []
    tables: list[tuple[str, Mapping[Any, Meaning]]] = [("Kafka", OF_KAFKA), ("`OwnError`", OF_OWN), ("HTTP", OF_HTTP)]
    for family, table in tables:
        for code, meaning in table.items():
            name = code.name if family != "Kafka" else error_name(code)
            retryable = "yes" if meaning.retryable else "no"
            rows.append((family, f"{int(code)} {name}", f"`{meaning.error.__name__}`", retryable))
    yield ""
    yield from markdown.table(("`code` of", "code", "error", "`retryable`"), rows)
    yield from ("", "Every other code is a `SidecarError` that is not retryable.", "")


def _line(found: Any) -> str:
    return " ".join(inspect.cleandoc(found.__doc__ or "").split())
