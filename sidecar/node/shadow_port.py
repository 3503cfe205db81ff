"""What the HTTP side needs of a node about shadow topics; the ways to fail are those of `sidecar.node.port`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sidecar.shadow.cursor_reset import Target
    from sidecar.shadow.cursors import Cursor
    from sidecar.shadow.statistics import Numbers


class ShadowState(StrEnum):
    """Whether a shadow can be read."""

    MAKING = "making"
    OPEN = "open"
    CLOSED = "closed"
    """Its source is gone, or is another topic by now."""


@dataclass(frozen=True, slots=True)
class Shadow:
    """A read-only name over a source topic's log. `allow`: the principals that may read it. `is_made` False: its topic
    is about to be created. `auto_reset_backlog_entries`: a cursor that is more records behind is reset; 0: never.
    `warning`: why nobody can read it, if so.
    """

    name: str
    source: str
    allow: Sequence[str]
    created_ms: int
    is_made: bool
    auto_reset_backlog_entries: int = 0
    """Cursors that more records lie behind are reset to the end; 0: never."""
    state: ShadowState = ShadowState.OPEN
    reason: str | None = None
    """Why it is closed, and what to do."""
    warning: str | None = None


class ShadowPort(Protocol):
    """Shadow topics as the HTTP side sees them. All methods may raise `UnavailableError`."""

    async def known(self, source: str | None = None) -> Sequence[Shadow]:
        """Every shadow, or those of a topic, by name. Raises NotFoundError without such a topic."""
        ...

    async def page(self, source: str | None, after: str, most: int) -> tuple[Sequence[Shadow], bool]:
        """`most` shadows by name, after the name `after` ("": the beginning), of a topic or (None) of all; and whether
        there are more. Raises NotFoundError without such a topic.
        """
        ...

    async def sources(self, names: Sequence[str]) -> Mapping[str, str]:
        """The shadows among these names, each with its source. Quick: no round trip."""
        ...

    async def readable(self, names: Sequence[str]) -> Mapping[str, bool]:
        """Those of these names that are topics or shadows; False for a shadow that is closed or not made yet."""
        ...

    async def create(
        self, source: str, name: str, allow: Sequence[str] | None, auto_reset_backlog_entries: int = 0
    ) -> Shadow:
        """Make a shadow, which every node serves then. `allow` None: everybody may read it.

        Raises NotFoundError without such a source, ConflictError where the name is taken, InvalidError for a name or a
        principal that cannot be.
        """
        ...

    async def delete(self, source: str, name: str) -> None:
        """Delete a shadow with its cursors; its source stays. Raises NotFoundError where there is none."""
        ...

    async def delete_topic(self, topic: str, *, force: bool) -> None:
        """Delete a topic that is no shadow; with `force` its shadows and their cursors first.

        Raises NotFoundError where there is neither topic nor shadow of it, ConflictError where it has shadows and
        `force` is False, is a shadow itself, or Kafka refuses.
        """
        ...

    async def change(self, name: str, allow: Sequence[str] | None, auto_reset_backlog_entries: int | None) -> Shadow:
        """Change what is not None in a shadow; every node knows when this returns.

        Raises NotFoundError, ConflictError while it is being made, InvalidError for a principal that cannot be.
        """
        ...

    # Cursors and numbers --------------------------------------------------------------------------------------------

    async def cursors(self, name: str) -> Sequence[Cursor]:
        """Every cursor of a shadow by group, a few seconds old at most.

        Raises NotFoundError without such a shadow, ConflictError where its source is gone.
        """
        ...

    async def reset_cursor(self, name: str, group: str, to: Target, partitions: Collection[int] | None) -> Cursor:
        """Move a group's cursor, in all partitions (None) or some; it is made where there is none.

        Raises as `cursors`, ConflictError while the group has members, InvalidError for what the log does not have.
        """
        ...

    async def stats(self, name: str) -> Numbers:
        """A shadow in numbers, nothing known of one that is not there. Takes a few seconds at most. Readers, bytes and
        resets are the asked node's since it started; groups and lags the cluster's.
        """
        ...
