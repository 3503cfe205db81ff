"""Shadow topics as the HTTP side sees them: `sidecar.shadow_port.ShadowPort`, implemented over the rooms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar import shadow_port as port
from sidecar.cursor_view import CursorView
from sidecar.node_port import ConflictError, InvalidError, NotFoundError, UnavailableError
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.metadata import MetadataRequest
from sidecar.shadow.catalog import EVERYBODY, FAILURES, BadShadowError, NameTakenError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sidecar.node import Node
    from sidecar.shadow.catalog import Shadow, ShadowCatalog


class ShadowView(CursorView):
    """Implements `ShadowPort`."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._node = node

    def _catalog(self) -> ShadowCatalog:
        rooms = self._node.rooms
        if rooms is None:
            raise UnavailableError(self._node.problem)
        return rooms.shadows

    async def known(self, source: str | None = None) -> Sequence[port.Shadow]:
        catalog = self._catalog()
        if source is None:
            return [_shown(found) for found in catalog.all()]
        if not await self._exists(source):
            raise NotFoundError(f"there is no topic {source}")
        return [_shown(found) for found in catalog.of(source)]

    async def create(
        self, source: str, name: str, allow: Sequence[str] | None, auto_reset_backlog_entries: int = 0
    ) -> port.Shadow:
        catalog = self._catalog()
        try:
            allowed = EVERYBODY if allow is None else allow
            return _shown(await catalog.create(source, name, allowed, auto_reset_backlog_entries))
        except BadShadowError as error:
            raise InvalidError(str(error)) from None
        except NameTakenError as error:
            raise ConflictError(str(error)) from None
        except LookupError:
            raise NotFoundError(f"there is no topic {source}") from None
        except FAILURES as error:
            raise UnavailableError.unsettled(error, f"sidecar shadow show {name}") from None

    async def delete(self, source: str, name: str) -> None:
        catalog = self._catalog()
        if all(found.name != name for found in catalog.of(source)):
            raise NotFoundError(f"{source} has no shadow {name}")
        try:
            await catalog.delete(name)
        except LookupError:
            raise NotFoundError(f"{source} has no shadow {name}") from None
        except FAILURES as error:
            raise UnavailableError.unsettled(error, f"sidecar shadow show {name}") from None

    async def _exists(self, topic: str) -> bool:
        try:
            found = await self._node.upstream.metadata(MetadataRequest((topic,), allow_auto_topic_creation=False))
        except UpstreamError as error:
            raise UnavailableError(str(error)) from None
        return any(each.name == topic and each.partitions for each in found.topics)


def _shown(found: Shadow) -> port.Shadow:
    return port.Shadow(
        found.name, found.source, found.allow, found.created_ms, found.is_made, found.auto_reset_backlog_entries
    )
