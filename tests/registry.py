"""A schema registry for tests that has Confluent's REST interface, as far as its clients use it, and keeps all in
memory. It remembers what it was asked. No registry that could be run here comes from a package registry.

`SIDECAR_TEST_SCHEMA_REGISTRY=http://host:port` names a real one; tests that look at what arrived need this one.
"""

from __future__ import annotations

import json
import os
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

VARIABLE = "SIDECAR_TEST_SCHEMA_REGISTRY"
TYPE = "application/vnd.schemaregistry.v1+json"


class Asked(NamedTuple):
    """One request as it arrived."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


class RefusedError(Exception):
    """An error in the registry's form."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class Registry:
    """What is registered: schemas by subject in the order of their versions, ids by schema, settings by subject."""

    url: str = ""
    subjects: dict[str, list[str]] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)
    settings: dict[str, dict[str, Any]] = field(default_factory=lambda: {"config": {}, "mode": {}})
    asked: list[Asked] = field(default_factory=list)

    def answer(self, method: str, target: str, body: bytes) -> Any:
        """The answer's JSON. Raises RefusedError."""
        url = urlsplit(target)
        words = [unquote(word) for word in url.path.strip("/").split("/")]
        query = {key: values[0] for key, values in parse_qs(url.query, keep_blank_values=True).items()}
        sent = json.loads(body) if body else {}
        match words:
            case ["subjects"]:
                return self._page(
                    [name for name in self.subjects if name.startswith(query.get("subjectPrefix", ""))], query
                )
            case ["schemas"]:
                found = [
                    self._version(name, number + 1)
                    for name in self.subjects
                    for number in range(len(self.subjects[name]))
                ]
                return self._page(
                    [each for each in found if each["subject"].startswith(query.get("subjectPrefix", ""))], query
                )
            case ["schemas", "types"]:
                return ["AVRO"]
            case ["schemas", "ids", number, *rest]:
                return self._by_id(int(number), rest, query)
            case ["compatibility", "subjects", subject, "versions", *_]:
                return {"is_compatible": self._known(subject)[-1] == sent["schema"]}
            case ["subjects", subject]:
                return self._subject(method, subject, sent)
            case ["subjects", subject, "versions"] if method == "POST":
                return {"id": self._register(subject, sent["schema"])}
            case ["subjects", subject, "versions"]:
                return [index + 1 for index in range(len(self._known(subject)))]
            case ["subjects", subject, "versions", version, *rest]:
                return self._of_version(method, subject, version, rest)
            case [("config" | "mode") as kind, *rest]:
                return self._setting(method, kind, rest[0] if rest else "", sent)
            case _:
                raise RefusedError(404, "HTTP 404 Not Found")

    def _page(self, found: list[Any], query: dict[str, str]) -> list[Any]:
        first, most = int(query.get("offset", 0)), int(query.get("limit", -1))
        return found[first : first + most if most > 0 else None]

    def _known(self, subject: str) -> list[str]:
        if subject not in self.subjects:
            raise RefusedError(40401, f"Subject '{subject}' not found.")
        return self.subjects[subject]

    def _register(self, subject: str, schema: str) -> int:
        found = self.subjects.setdefault(subject, [])
        if schema not in found:
            found.append(schema)
        return self.ids.setdefault(schema, len(self.ids) + 1)

    def _version(self, subject: str, version: int) -> dict[str, Any]:
        schema = self.subjects[subject][version - 1]
        return {"subject": subject, "version": version, "id": self.ids[schema], "schema": schema}

    def _subject(self, method: str, subject: str, sent: dict[str, Any]) -> Any:
        found = self._known(subject)
        if method == "DELETE":
            return [index + 1 for index in range(len(self.subjects.pop(subject)))]
        if sent["schema"] not in found:
            raise RefusedError(40403, "Schema not found")
        return self._version(subject, found.index(sent["schema"]) + 1)

    def _of_version(self, method: str, subject: str, version: str, rest: list[str]) -> Any:
        found = self._known(subject)
        number = len(found) if version in ("latest", "-1") else int(version)
        if not 0 < number <= len(found):
            raise RefusedError(40402, f"Version {version} not found.")
        if method == "DELETE":
            del found[number - 1]
            return number
        if rest == ["schema"]:
            return json.loads(found[number - 1])
        return [] if rest == ["referencedby"] else self._version(subject, number)

    def _by_id(self, number: int, rest: list[str], query: dict[str, str]) -> Any:
        schema = next((schema for schema, known in self.ids.items() if known == number), None)
        if schema is None:
            raise RefusedError(40403, f"Schema {number} not found")
        users = [name for name, schemas in self.subjects.items() if schema in schemas]
        if "subject" in query and query["subject"] not in users:
            raise RefusedError(40403, f"Schema {number} not found in {query['subject']}")
        if rest == ["subjects"]:
            return users
        if rest == ["versions"]:
            return [{"subject": name, "version": self.subjects[name].index(schema) + 1} for name in users]
        return json.loads(schema) if rest == ["schema"] else {"schema": schema}

    def _setting(self, method: str, kind: str, subject: str, sent: dict[str, Any]) -> Any:
        known = self.settings[kind]
        if method == "PUT":
            known[subject] = sent
            return sent
        if method == "DELETE":
            return known.pop(subject, {})
        if subject and subject not in known:
            raise RefusedError(40408, f"Subject '{subject}' does not have subject-level {kind} configured")
        name, default = ("compatibilityLevel", "BACKWARD") if kind == "config" else ("mode", "READWRITE")
        return {name: next(iter(known.get(subject, {}).values()), default)}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    registry: Registry

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.registry.asked.append(Asked(self.command, self.path, dict(self.headers), body))
        try:
            status, found = 200, self.registry.answer(self.command, self.path, body)
        except RefusedError as error:
            status, found = int(str(error.code)[:3]), {"error_code": error.code, "message": str(error)}
        text = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", TYPE)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815  the names of the base class

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name of the base class
        pass


@contextmanager
def running_registry(tls: ssl.SSLContext | None = None) -> Iterator[Registry]:
    """A registry of its own, at `url`; by TLS where it is given a context."""
    registry = Registry()
    handler = type("Handler", (_Handler,), {"registry": registry})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        registry.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def any_registry() -> Iterator[str]:
    """The URL of the one that `SIDECAR_TEST_SCHEMA_REGISTRY` names, else of one of its own."""
    named = os.environ.get(VARIABLE)
    if named:
        yield named
        return
    with running_registry() as registry:
        yield registry.url
