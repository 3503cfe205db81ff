"""Answers held against an OpenAPI document: status, content type, headers, body."""

from __future__ import annotations

import json
import re
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import jsonschema_rs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

REGISTRY = "application/vnd.schemaregistry.v1+json"
METHODS = ("get", "put", "post", "delete", "patch")


@dataclass(frozen=True)
class Answer:
    """What came: `body` decoded where it is JSON."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def kind(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0]

    @property
    def body(self) -> Any:
        return json.loads(self.text)


@dataclass(frozen=True)
class Operation:
    """One of the document. `parameters`: those of its path too."""

    method: str
    path: str
    told: Mapping[str, Any]
    parameters: tuple[Mapping[str, Any], ...]

    @property
    def name(self) -> str:
        return self.told["operationId"]

    @property
    def successes(self) -> set[int]:
        return {int(status) for status in self.told["responses"] if status.isdigit() and int(status) < 300}


def operations(document: Mapping[str, Any]) -> Iterator[Operation]:
    """All of them."""
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                parameters = (*item.get("parameters", ()), *item[method].get("parameters", ()))
                yield Operation(method.upper(), path, item[method], parameters)


def ask(url: str, method: str, target: str, body: bytes | None = None, **headers: str) -> Answer:
    """One request, whose target goes out as it stands, and its answer, over a connection of its own: no client that
    would mend either.
    """
    at = urlsplit(url)
    sent = {"Host": at.netloc, "Connection": "close"}
    sent |= {name.replace("_", "-"): text for name, text in headers.items()}
    if body is not None:
        sent |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
    head = "".join(f"{name}: {text}\r\n" for name, text in sent.items())
    with socket.create_connection((at.hostname or "", at.port or 80), timeout=30) as line:
        line.sendall(f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + (body or b""))
        came = b""
        while more := line.recv(65536):
            came += more
    first, _, text = came.partition(b"\r\n\r\n")
    status, *lines = first.decode("latin-1").split("\r\n")
    found = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in lines)}
    if found.get("transfer-encoding") == "chunked" and method != "HEAD":
        text = _unchunked(text)
    return Answer(int(status.split()[1]), found, text.decode())


def _unchunked(text: bytes) -> bytes:
    found = b""
    while True:
        size, _, text = text.partition(b"\r\n")
        length = int(size, 16)
        if length == 0:
            return found
        found, text = found + text[:length], text[length + 2 :]


def check_error(answer: Answer, *kinds: str) -> str:
    """Every error has the one shape; its message. `kinds`: content types besides JSON's own."""
    assert answer.kind in ("application/json", *kinds), answer
    body = answer.body
    assert set(body) >= {"error_code", "message"}, body
    assert body["error_code"] == answer.status
    assert isinstance(body["message"], str)
    assert body["message"]
    return body["message"]


def check(document: Mapping[str, Any], operation: Operation, answer: Answer) -> None:
    """Raises AssertionError or jsonschema_rs.ValidationError where an answer is not as the document says."""
    responses = operation.told["responses"]
    told = responses.get(str(answer.status)) or (responses["default"] if answer.status >= 400 else None)
    assert told is not None, f"{operation.name} answers {answer.status}, which the document does not know"
    for header in told.get("headers", {}):
        assert header.lower() in answer.headers, f"{operation.name} answers without {header}"
    content = told.get("content", {})
    if answer.status in (204, 304):
        assert not content, f"{operation.name}: no body may come with {answer.status}"
        assert not answer.text
        return
    if not content:
        check_error(answer, REGISTRY)  # what a registry answers is described by others
        return
    assert answer.kind in content, f"{operation.name} answers {answer.kind!r}, the document has {list(content)}"
    if answer.kind == "application/json":
        schema = {**content[answer.kind]["schema"], "components": document["components"]}
        jsonschema_rs.Draft202012Validator(schema, validate_formats=True).validate(answer.body)


def filled(path: str, /, **values: str) -> str:
    """A path of the document with values in its braces."""
    return re.sub(r"\{(\w+)\}", lambda found: values[found[1]], path)
