"""`/v1` of shadow topics and their cursors: checks the request, calls the node, shapes the answer. A group's name may
hold anything; a slash in it is sent as %2F.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Final

from aiohttp import web

from sidecar.admin import asked
from sidecar.admin.judged import judged_now
from sidecar.admin.operations import answer, flag, nothing, paged, reads, writes
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

_BELONG: Final = "shadows belong"
_SHADOWS: Final = "/v1/topics/{topic}/shadows"
_SHADOW: Final = "/v1/shadows/{shadow}"


class ShadowRest:
    """The handlers."""

    def __init__(self, port: ShadowView) -> None:
        self._port = port

    @reads(_SHADOWS, answer(SHADOWS), *paged())
    async def list_shadows(self, request: web.Request) -> web.Response:
        """The shadows of a topic, by name."""
        return await self._page(request, asked.one_topic(request, _BELONG))

    @reads("/v1/shadows", answer(SHADOWS), *paged())
    async def list_every_shadow(self, request: web.Request) -> web.Response:
        """All shadows, by name. Those too whose source is gone."""
        return await self._page(request, None)

    async def _page(self, request: web.Request, source: str | None) -> web.Response:
        """A page of shadows by name; `page_token` is the last name of the page before."""
        found, more = await self._port.page(source, asked.last_topic(request), asked.page_size(request))
        token = found[-1].name if more else None
        return reply(SHADOWS.to_json((found, token)))

    @writes(f"POST {_SHADOWS}", "shadow.create", {"201": answer(SHADOW)}, failing=(409,), body="NewShadow")
    async def create_shadow(self, request: web.Request) -> web.Response:
        """Make a shadow."""
        source = asked.one_topic(request, _BELONG)
        name, allow, limit = shadow_from_json(await asked.body(request))
        judged_now().note(shadow=name, allow=allow)
        return reply(SHADOW.to_json(await self._port.create(source, name, allow, limit)), status=201)

    @writes(f"DELETE {_SHADOWS}/{{shadow}}", "shadow.delete", nothing("Deleted"))
    async def delete_shadow(self, request: web.Request) -> web.Response:
        """Delete a shadow and its cursors."""
        await self._port.delete(asked.one_topic(request, _BELONG), request.match_info["shadow"])
        return web.Response(status=204)

    @reads(_SHADOW, answer(SHADOW))
    async def get_shadow(self, request: web.Request) -> web.Response:
        """One shadow. In numbers too."""
        name = request.match_info["shadow"]
        found = next((each for each in await self._port.known() if each.name == name), None)
        if found is None:
            raise NotFoundError(f"there is no shadow {name}")
        return reply(SHADOW.to_json(found, stats=await self._port.stats(name)))

    @writes(f"PATCH {_SHADOW}", "shadow.change", {"200": answer(SHADOW)}, failing=(409,), body="ShadowChange")
    async def change_shadow(self, request: web.Request) -> web.Response:
        """Change who may read it, and when cursors are reset. Answers with the shadow as it is then."""
        allow, limit = change_from_json(body := await asked.body(request))
        judged_now().note(change=body)
        return reply(SHADOW.to_json(await self._port.change(request.match_info["shadow"], allow, limit)))

    @writes(
        "DELETE /v1/topics/{topic}",
        "topic.delete",
        nothing("Deleted"),
        flag("force", "Its shadows and their cursors too; else a topic with shadows is 409."),
        failing=(409,),
    )
    async def delete_topic(self, request: web.Request) -> web.Response:
        """Delete a topic with its records. With its shadows where that is said."""
        topic = asked.one_topic(request, "a deletion belongs")
        judged_now().note(force=asked.flag(request, "force"))
        await self._port.delete_topic(topic, force=asked.flag(request, "force"))
        return web.Response(status=204)

    @reads(f"{_SHADOW}/cursors", answer(CURSORS), *paged(pattern=None))
    async def list_cursors(self, request: web.Request) -> web.Response:
        """What groups have committed for a shadow, and how far behind. `page_token` is the last group of the page
        before.
        """
        size, after = asked.page_size(request), request.query.get("page_token", "")
        return page(CURSORS, await self._port.cursors(request.match_info["shadow"]), attrgetter("group"), after, size)

    @writes(
        f"POST {_SHADOW}/cursors/{{group:[^/]+}}/reset",
        "cursor.reset",
        {"200": answer(CURSOR)},
        failing=(409,),
        body="CursorReset",
    )
    async def reset_cursor(self, request: web.Request) -> web.Response:
        """Move the cursor of a group without members; one is made where there is none."""
        to, partitions = reset_from_json(body := await asked.body(request))
        judged_now().note(change=body)
        names = request.match_info
        return reply(CURSOR.to_json(await self._port.reset_cursor(names["shadow"], names["group"], to, partitions)))
