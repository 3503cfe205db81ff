"""Errors of the schema proxy in a registry's own form: `{"error_code": …, "message": …}`, each with what to do."""

from __future__ import annotations

import json
from typing import Final

from aiohttp import web

from sidecar.shadow.subjects import Claim

_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_SETTING: Final = "SIDECAR_SCHEMA_REGISTRY_URL"
_NOT_FOUND: Final = 40401
"""A registry's own code for a subject that is not there."""
_READ_ONLY: Final = 40301


class RegistryError(Exception):
    """The client's answer: an HTTP status, a registry's error code (the status, where it has none), a message."""

    def __init__(self, status: int, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = status if code is None else code

    def reply(self) -> web.Response:
        """The answer."""
        text = json.dumps({"error_code": self.code, "message": str(self)}, ensure_ascii=False)
        return web.Response(text=text, status=self.status, content_type=_TYPE)


def without_registry() -> RegistryError:
    """No registry is configured."""
    return RegistryError(501, f"no schema registry is configured: set {_SETTING} on this node")


def away(url: str, error: BaseException) -> RegistryError:
    """The registry cannot be reached, or does not answer."""
    slow = isinstance(error, TimeoutError)
    what = "does not answer in time" if slow else f"cannot be asked ({error or type(error).__name__})"
    return RegistryError(
        504 if slow else 502, f"the schema registry at {url} {what}: look whether it runs, and at {_SETTING}"
    )


def read_only(found: Claim) -> RegistryError:
    """A write to a shadow's subject."""
    message = (
        f"{found.shadow} is a shadow of {found.source}, and {found.subject} is read-only with it:"
        f" write to {found.read}, under the source's name; producers write to {found.source}"
    )
    return RegistryError(403, message, _READ_ONLY)


def closed(found: Claim) -> RegistryError:
    """A read under a shadow that is closed."""
    message = (
        f"{found.shadow} is closed: {found.source} was deleted or created again, or the shadow is not created yet;"
        f" delete the shadow and create it again to read {found.subject}"
    )
    return RegistryError(404, message, _NOT_FOUND)


def not_found(found: Claim) -> RegistryError:
    """The name that would be read is another topic's."""
    message = f"Subject '{found.subject}' not found: {found.read} belongs to another topic than {found.source}"
    return RegistryError(404, message, _NOT_FOUND)
