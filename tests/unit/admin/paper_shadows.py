"""Shadow topics over a dictionary, for tests of the HTTP side."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sidecar.node.port import ConflictError, NotFoundError, Shadow
from sidecar.node.view.shadows import ShadowView
from sidecar.shadow.cursor_room import Numbers, Reading
from sidecar.shadow.cursors import AtOffset, Cursor, Lag, Position, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence


class PaperShadows(ShadowView):
    """`topics`: what may be a source; `called` is told of every call."""

    def __init__(self, topics: MutableMapping[str, Any], called: Callable[..., None]) -> None:
        self._topics = topics
        self._called = called
        self.views: dict[str, Shadow] = {}
        self.of_groups: dict[str, list[Cursor]] = {}
        self.members: set[str] = set()

    async def known(self, source: str | None = None) -> Sequence[Shadow]:
        self._called("shadows", source)
        if source is not None and source not in self._topics:
            raise NotFoundError(f"there is no topic {source}")
        return [found for found in self.views.values() if source in (None, found.source)]

    async def page(self, source: str | None, after: str, most: int) -> tuple[Sequence[Shadow], bool]:
        found = sorted((each for each in await self.known(source) if each.name > after), key=lambda each: each.name)
        return found[:most], len(found) > most

    async def sources(self, names: Sequence[str]) -> Mapping[str, str]:
        self._called("sources", tuple(names))
        return {name: self.views[name].source for name in names if name in self.views}

    async def readable(self, names: Sequence[str]) -> Mapping[str, bool]:
        self._called("readable", tuple(names))
        shadows = {name: self.views[name].source in self._topics for name in names if name in self.views}
        return {**{name: True for name in names if name in self._topics}, **shadows}

    async def create(
        self, source: str, name: str, allow: Sequence[str] | None, auto_reset_backlog_entries: int = 0
    ) -> Shadow:
        self._called("create_shadow", source, name, allow)
        if source not in self._topics:
            raise NotFoundError(f"there is no topic {source}")
        if name in self.views:
            raise ConflictError(f"there is a topic {name} already")
        allowed = ("User:*",) if allow is None else tuple(allow)
        found = self.views[name] = Shadow(
            name, source, allowed, 0, is_made=True, auto_reset_backlog_entries=auto_reset_backlog_entries
        )
        return found

    async def delete(self, source: str, name: str) -> None:
        self._called("delete_shadow", source, name)
        if name not in self.views or self.views[name].source != source:
            raise NotFoundError(f"{source} has no shadow {name}")
        del self.views[name]

    async def delete_topic(self, topic: str, *, force: bool) -> None:
        self._called("delete_topic", topic, force)
        if topic in self.views:
            raise ConflictError(f"{topic} is a shadow: delete it by `sidecar shadow delete {topic}`")
        found = [name for name, shadow in self.views.items() if shadow.source == topic]
        if found and not force:
            raise ConflictError(f"{topic} has shadows: {', '.join(found)}")
        for name in found:
            del self.views[name]
        if self._topics.pop(topic, None) is None and not found:
            raise NotFoundError(f"there is no topic {topic}")

    async def change(self, name: str, allow: Sequence[str] | None, auto_reset_backlog_entries: int | None) -> Shadow:
        self._called("change_shadow", name, allow, auto_reset_backlog_entries)
        if name not in self.views:
            raise NotFoundError(f"there is no shadow {name}")
        found = self.views[name]
        if allow is not None:
            found = replace(found, allow=allow)
        if auto_reset_backlog_entries is not None:
            found = replace(found, auto_reset_backlog_entries=auto_reset_backlog_entries)
        self.views[name] = found
        return found

    # Cursors and numbers --------------------------------------------------------------------------------------------

    async def cursors(self, name: str) -> Sequence[Cursor]:
        self._called("cursors", name)
        if name not in self.views:
            raise NotFoundError(f"there is no shadow {name}")
        return self.of_groups.get(name, [])

    async def reset_cursor(self, name: str, group: str, to: Target, partitions: Collection[int] | None) -> Cursor:
        self._called("reset_cursor", name, group, to, partitions)
        if name not in self.views:
            raise NotFoundError(f"there is no shadow {name}")
        if group in self.members:
            raise ConflictError(f"group {group} has members: stop them first")
        at = to.offset if isinstance(to, AtOffset) else 0
        positions = {index: Position(at, 100, 100 - at) for index in partitions or (0,)}
        return Cursor(group, "Empty", 0, positions)

    async def stats(self, name: str) -> Numbers:
        self._called("stats", name)
        return Numbers(name, Reading(1, 2_000, 1_700_000_000_000), 0, Lag(3, 40, 30))
