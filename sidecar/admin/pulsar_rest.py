"""Shadows under Pulsar's own path, for Pulsar's tools (PIP-180): a topic's shadows as a list of names.

Tenant and namespace have no meaning here and are ignored. Names are accepted as Pulsar writes them, with a tenant and a
namespace or without. They are returned without, which Pulsar reads too. Pulsar creates a topic and links it in two
steps; here it is one: shadows that are listed are created, and others are deleted with their cursors.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from aiohttp import web

from sidecar.admin import asked
from sidecar.admin.faults import ShapeError, is_internal, is_topic, quoted
from sidecar.admin.judged import judged_now
from sidecar.admin.operations import answer, nothing, reads, writes
from sidecar.admin.replies import reply
from sidecar.admin.shadow_shapes import NAMES, PULSAR_PROPERTIES, SHADOW_NAMES, SOURCE_PROPERTY, WANTED_SHADOWS
from sidecar.node.port import NotFoundError, PortError, UnavailableError
from sidecar.node.view.shadows import ShadowView

_TOPIC: Final = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
_SHADOWS: Final = f"{_TOPIC}/shadowTopics"
_FULL: Final = re.compile(r"(?:(?:persistent://)?[^/]+/[^/]+/)?([^/]+)")
_BELONG: Final = "shadows belong"
_ENOUGH_S: Final = 40.0
"""Seconds after which no further change begins: the whole answer has a minute, and a change that
has begun has to end.
"""


class PulsarRest:
    """The handlers."""

    def __init__(self, port: ShadowView) -> None:
        self._port = port

    @reads(_SHADOWS, answer(SHADOW_NAMES))
    async def list_shadows_of_pulsar(self, request: web.Request) -> web.Response:
        """The shadows of a topic."""
        return reply(await self._known(asked.one_topic(request, _BELONG)))

    @writes(f"PUT {_SHADOWS}", "shadow.replace", nothing("Done"), failing=(409,), body=WANTED_SHADOWS.name)
    async def replace_shadows(self, request: web.Request) -> web.Response:
        """Make those that are named, delete all others."""
        source, wanted = asked.one_topic(request, _BELONG), _names(await asked.body(request))
        known = await self._known(source)
        return await self._change(request, source, _without(wanted, known), _without(known, wanted))

    @writes(f"POST {_SHADOWS}", "shadow.create", nothing("Done"), failing=(409,), body=WANTED_SHADOWS.name)
    async def add_shadows(self, request: web.Request) -> web.Response:
        """Make those that are named. What is there already stays."""
        source, wanted = asked.one_topic(request, _BELONG), _names(await asked.body(request))
        return await self._change(request, source, _without(wanted, await self._known(source)), ())

    @writes(
        f"DELETE {_SHADOWS}", "shadow.delete", nothing("Done"), failing=(409,), body=WANTED_SHADOWS.name, optional=True
    )
    async def remove_shadows(self, request: web.Request) -> web.Response:
        """Delete those that are named, or all without a body. What is gone already is no fault."""
        source = asked.one_topic(request, _BELONG)
        named = _names(await asked.body(request)) if await request.read() else None
        known = await self._known(source)
        return await self._change(
            request, source, (), known if named is None else [name for name in named if name in known]
        )

    @reads(f"{_TOPIC}/properties", answer(PULSAR_PROPERTIES))
    async def get_properties(self, request: web.Request) -> web.Response:
        """The source of a shadow, as Pulsar keeps it."""
        name = asked.one_topic(request, "properties belong")
        source = next((each.source for each in await self._port.known() if each.name == name), None)
        if source is None:
            await self._port.known(name)  # raises where there is no such topic
            return reply({})
        match = request.match_info
        return reply({SOURCE_PROPERTY: f"persistent://{match['tenant']}/{match['namespace']}/{source}"})

    async def _known(self, source: str) -> list[str]:
        return [shadow.name for shadow in await self._port.known(source)]

    async def _change(
        self, request: web.Request, source: str, made: Iterable[str], deleted: Iterable[str]
    ) -> web.Response:
        """Make the changes one after the other, up to the first failure. Earlier changes stay, and the error lists
        them.
        """
        deadline = asyncio.get_running_loop().time() + _ENOUGH_S
        done: list[str] = []
        judged_now().note(done=done)  # also if a later one fails
        steps: list[tuple[str, str, Callable[[], Awaitable[object]]]] = [
            *(("make", name, lambda name=name: self._port.create(source, name, None)) for name in made),
            *(("delete", name, lambda name=name: self._delete(source, name)) for name in deleted),
        ]
        for what, name, act in steps:
            try:
                if asyncio.get_running_loop().time() > deadline:
                    raise UnavailableError("the time limit is reached, send the request again for the rest")
                await act()
            except PortError as error:
                before = f"; done before: {', '.join(done)}" if done else "; nothing was done before"
                again = ". The same request again does the rest" if isinstance(error, UnavailableError) else ""
                raise type(error)(f"cannot {what} {name}: {error}{before}{again}") from None
            done.append(f"{what} {name}")
        return web.Response(status=204)

    async def _delete(self, source: str, name: str) -> None:
        try:
            await self._port.delete(source, name)
        except NotFoundError:
            return  # another client was faster


def _names(body: object) -> list[str]:
    """The names in a body, without repetitions. Raises ShapeError."""
    if not isinstance(body, list) or not all(isinstance(each, str) for each in body):
        raise ShapeError('the body has to be a JSON list of names such as ["orders-audit"]')
    if not body:
        raise ShapeError("the list names nothing; DELETE without a body deletes all shadows of the topic")
    if len(body) > NAMES:
        raise ShapeError(f"the list holds {len(body)} names, {NAMES} are the most")
    return list(dict.fromkeys(_name(each) for each in body))


def _name(text: str) -> str:
    found = _FULL.fullmatch(text)
    if found is None or not is_topic(found[1]) or is_internal(found[1]):
        raise ShapeError(f"{quoted(text)} is no name of a shadow: NAME, or persistent://TENANT/NAMESPACE/NAME")
    return found[1]


def _without(some: Iterable[str], others: Iterable[str]) -> list[str]:
    left_out = set(others)
    return [name for name in some if name not in left_out]
