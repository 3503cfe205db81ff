"""`/v1` of shadow topics and their cursors: checks what was sent, asks the node, shapes the answer."""

from __future__ import annotations

from operator import attrgetter

from aiohttp import web

from sidecar.admin import asked
from sidecar.admin.judged import judged_now
from sidecar.admin.replies import page, reply
from sidecar.admin.shadow_shapes import (
    CURSOR,
    CURSORS,
    SHADOW,
    SHADOWS,
    change_from_json,
    reset_from_json,
    shadow_from_json,
)
from sidecar.node.port import NotFoundError
from sidecar.node.view.shadows import ShadowView

_BELONG = "shadows belong"


class ShadowRest:
    """The handlers."""

    def __init__(self, port: ShadowView) -> None:
        self._port = port

    def routes(self) -> list[web.RouteDef]:
        """Every path and method. A group's name may hold anything; a slash in it comes as %2F."""
        return [
            web.get("/v1/topics/{topic}/shadows", self.shadows),
            web.post("/v1/topics/{topic}/shadows", self.create),
            web.delete("/v1/topics/{topic}/shadows/{shadow}", self.delete),
            web.delete("/v1/topics/{topic}", self.delete_topic),
            web.get("/v1/shadows", self.every),
            web.get("/v1/shadows/{shadow}", self.shadow),
            web.patch("/v1/shadows/{shadow}", self.change),
            web.get("/v1/shadows/{shadow}/cursors", self.cursors),
            web.post(r"/v1/shadows/{shadow}/cursors/{group:[^/]+}/reset", self.reset),
        ]

    @asked.takes("page_size", "page_token")
    async def shadows(self, request: web.Request) -> web.Response:
        """A page of the shadows of a topic."""
        return await self._page(request, asked.one_topic(request, _BELONG))

    @asked.takes("page_size", "page_token")
    async def every(self, request: web.Request) -> web.Response:
        """A page of all shadows, those too whose source is gone."""
        return await self._page(request, None)

    async def _page(self, request: web.Request, source: str | None) -> web.Response:
        """By name; `page_token` is the last name of the page before."""
        found, more = await self._port.page(source, asked.last_topic(request), asked.page_size(request))
        token = found[-1].name if more else None
        return reply(SHADOWS.to_json((found, token)))

    async def create(self, request: web.Request) -> web.Response:
        """Make a shadow of a topic."""
        source = asked.one_topic(request, _BELONG)
        name, allow, limit = shadow_from_json(await asked.body(request))
        judged_now().note(shadow=name, allow=allow)
        return reply(SHADOW.to_json(await self._port.create(source, name, allow, limit)), status=201)

    async def delete(self, request: web.Request) -> web.Response:
        """Delete a shadow of a topic."""
        await self._port.delete(asked.one_topic(request, _BELONG), request.match_info["shadow"])
        return web.Response(status=204)

    async def shadow(self, request: web.Request) -> web.Response:
        """One shadow, in numbers too."""
        name = request.match_info["shadow"]
        found = next((each for each in await self._port.known() if each.name == name), None)
        if found is None:
            raise NotFoundError(f"there is no shadow {name}")
        return reply(SHADOW.to_json(found, stats=await self._port.stats(name)))

    async def change(self, request: web.Request) -> web.Response:
        """Change some fields of a shadow; answers with the shadow as it is then."""
        allow, limit = change_from_json(body := await asked.body(request))
        judged_now().note(change=body)
        return reply(SHADOW.to_json(await self._port.change(request.match_info["shadow"], allow, limit)))

    @asked.takes("force")
    async def delete_topic(self, request: web.Request) -> web.Response:
        """Delete a topic, with its shadows where that is said."""
        topic = asked.one_topic(request, "a deletion belongs")
        judged_now().note(force=asked.flag(request, "force"))
        await self._port.delete_topic(topic, force=asked.flag(request, "force"))
        return web.Response(status=204)

    @asked.takes("page_size", "page_token")
    async def cursors(self, request: web.Request) -> web.Response:
        """A page of cursors by group; `page_token` is the last group of the page before."""
        size, after = asked.page_size(request), request.query.get("page_token", "")
        return page(CURSORS, await self._port.cursors(request.match_info["shadow"]), attrgetter("group"), after, size)

    async def reset(self, request: web.Request) -> web.Response:
        """Move the cursor of a group without members."""
        to, partitions = reset_from_json(body := await asked.body(request))
        judged_now().note(change=body)
        names = request.match_info
        return reply(CURSOR.to_json(await self._port.reset_cursor(names["shadow"], names["group"], to, partitions)))
