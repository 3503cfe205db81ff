"""Replies of scripts as values. Raises `MetadataProtocolError` for one of another shape: a script's defect."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from .errors import MetadataProtocolError
from .nodes import Holder
from .ownership import ClaimInProgress, Generation, Ownership, ResourceState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .connection import Reply


def list_of(reply: Reply) -> list[Reply]:
    """A list."""
    if not isinstance(reply, list):
        raise MetadataProtocolError(f"a script answered {reply!r} instead of a list")
    return reply


def bytes_of(reply: Reply) -> bytes:
    """Text as it was sent."""
    if not isinstance(reply, bytes):
        raise MetadataProtocolError(f"a script answered {reply!r} instead of text")
    return reply


def text_of(reply: Reply) -> str:
    """Text."""
    return bytes_of(reply).decode()


def texts_of(reply: Reply) -> Sequence[str]:
    """A list of texts."""
    return [text_of(item) for item in list_of(reply)]


def int_of(reply: Reply) -> int:
    """A number, or the text of one."""
    return reply if isinstance(reply, int) else int(bytes_of(reply))


def pairs_of(reply: Reply) -> Iterator[tuple[Reply, Reply]]:
    """A flat list, two by two."""
    items = iter(list_of(reply))
    return cast("Iterator[tuple[Reply, Reply]]", zip(items, items, strict=True))


def holder_of(node_id: str, boot: str) -> Holder | None:
    """The node that serves a topic; None where the script named none."""
    return Holder(int(node_id), boot) if node_id else None


def holders_of(reply: Reply) -> Mapping[str, Holder]:
    """Holders by topic: "node boot" after each name."""
    entries = ((text_of(topic), text_of(entry).split(" ")) for topic, entry in pairs_of(reply))
    return MappingProxyType({topic: Holder(int(node_id), boot) for topic, (node_id, boot) in entries})


def ownership_of(resource: str, record: Reply) -> Ownership | None:
    """The record of a resource; None where there is none."""
    return Ownership.decode(resource, record) if isinstance(record, bytes) and record else None


def states_of(reply: Reply) -> Iterator[ResourceState]:
    """Owner and claim in progress, six items for each resource."""
    row = iter(list_of(reply))
    for resource, record, session, token, generation, left in zip(row, row, row, row, row, row, strict=True):
        name = text_of(resource)
        claim = None
        if session:
            claim = ClaimInProgress(
                text_of(session), bytes.fromhex(text_of(token)), Generation(int_of(generation)), int_of(left)
            )
        yield ResourceState(name, ownership_of(name, record), claim)
