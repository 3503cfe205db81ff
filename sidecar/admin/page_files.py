"""The page at `/`: static files beside this module, with headers that block everything else in it.

It holds no data. It reads from `/v1` like any client. Its changes pass the same check as every write (`access.py`):
same origin on the node's own machine, or the token. Nothing is loaded from elsewhere, the markup has no inline script
or style, and no other site may frame it (Content Security Policy Level 3).
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from aiohttp import web
from aiohttp.web_exceptions import HTTPNotFound

from sidecar.admin.operations import reads, text

FILES: Final = Path(__file__).with_name("page")
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:;"
    " form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # validated each time by its ETag
}
_KINDS: Final = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
_ABOUT: Final = "With an ETag and a Content-Security-Policy that allows nothing from elsewhere"
_UNCHANGED: Final = {"description": "As `If-None-Match` has it"}
_INDEX: Final = "index.html"


@dataclass(frozen=True, slots=True)
class _File:
    body: bytes
    kind: str
    etag: str


class Page:
    """The handlers. Reads all files when it is created: 110 KB, and no disk access while the node serves."""

    def __init__(self) -> None:
        self._files = {
            path.name: _File(body := path.read_bytes(), _KINDS[path.suffix], sha256(body).hexdigest()[:32])
            for path in sorted(FILES.iterdir())
            if path.suffix in _KINDS
        }

    @reads("/", text(_ABOUT, "text/html"), status_304=_UNCHANGED)
    async def page(self, request: web.Request) -> web.Response:
        """The page for people."""
        return _answer(request, self._files[_INDEX])

    @reads("/page/{file}", text(_ABOUT, *_KINDS.values()), status_304=_UNCHANGED)
    async def page_file(self, request: web.Request) -> web.Response:
        """A file of the page."""
        found = self._files.get(request.match_info["file"])
        if found is None:
            raise HTTPNotFound
        return _answer(request, found)


def _answer(request: web.Request, file: _File) -> web.Response:
    known = request.if_none_match or ()
    answer = (
        web.Response(status=304, headers=_HEADERS)
        if any(each.value in {file.etag, "*"} for each in known)
        else web.Response(body=file.body, content_type=file.kind, charset="utf-8", headers=_HEADERS)
    )
    answer.etag = file.etag
    return answer
