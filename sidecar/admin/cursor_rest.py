"""`/v1/shadows/…/cursors`: checks what was sent, asks the node, shapes the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from sidecar.admin import asked
from sidecar.admin.cursor_shapes import cursor_to_json, reset_from_json
from sidecar.admin.replies import reply

if TYPE_CHECKING:
    from sidecar.node.shadow_port import ShadowPort


class CursorRest:
    """The handlers."""

    def __init__(self, port: ShadowPort) -> None:
        self._port = port

    def routes(self) -> list[web.RouteDef]:
        """Every path and method. A group's name may hold anything; a slash in it comes as %2F."""
        return [
            web.get("/v1/shadows/{shadow}/cursors", self.cursors),
            web.post(r"/v1/shadows/{shadow}/cursors/{group:[^/]+}/reset", self.reset),
        ]

    @asked.takes("page_size", "page_token")
    async def cursors(self, request: web.Request) -> web.Response:
        """A page of cursors by group; `page_token` is the last group of the page before."""
        size = asked.page_size(request)
        after = request.query.get("page_token", "")
        found = [each for each in await self._port.cursors(request.match_info["shadow"]) if each.group > after]
        page = found[:size]
        token = page[-1].group if len(page) < len(found) else None
        return reply({"items": [cursor_to_json(each) for each in page], "next_page_token": token})

    async def reset(self, request: web.Request) -> web.Response:
        """Move the cursor of a group without members."""
        to, partitions = reset_from_json(await asked.body(request))
        names = request.match_info
        return reply(cursor_to_json(await self._port.reset_cursor(names["shadow"], names["group"], to, partitions)))
