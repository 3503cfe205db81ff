"""The audit log of the admin port: one event `audit` for each act, done or not, and for reads that are refused.

Its fields are a stable interface (docs/operate/access.md): who, from where, which act on what, with what result.
Never a token, a password or a record.
"""

from __future__ import annotations

import logging
from typing import Final

import structlog
from aiohttp import web

from sidecar.admin.access import Right
from sidecar.admin.judged import JudgedRequest
from sidecar.admin.operations import operations_of
from sidecar.telemetry.seldom import Seldom

READ: Final = "read"
OTHER: Final = "other"
_FIELDS: Final = {"topic": "topic", "name": "producer", "shadow": "shadow", "group": "group", "path": "schema"}
_ALIKE: Final = 20
"""The most refusals of one kind that are written within `seldom.WHILE_S`."""
_REFUSED: Final = 400
_FAILED: Final = 500
_LONGEST: Final = 500


class AuditLog:
    """Writes the events. Anybody can cause thousands of refusals: only the first few in a period are written, and the
    next event says how many were left out (`left_out`).
    """

    def __init__(self) -> None:
        self._refused = Seldom()

    def write(self, request: web.Request, judged: JudgedRequest, status: int | None, problem: str = "") -> None:
        """Write one act. `status`: of the answer; None if there was none."""
        self._log(act_of(request), request, judged, status, problem)

    def refused(self, request: web.Request, judged: JudgedRequest, status: int, problem: str, right: Right) -> None:
        """Write a request that lacked the right to it."""
        act = act_of(request) if right is Right.OPERATE else READ
        left_out = self._refused.ask(f"{act} {status}", _ALIKE if right is Right.OPERATE else 1)
        if left_out is None:
            return
        if left_out:
            judged.note(left_out=left_out)
        self._log(act, request, judged, status, problem)

    def _log(self, act: str, request: web.Request, judged: JudgedRequest, status: int | None, problem: str) -> None:
        result, match, query = result_of(status), request.match_info, request.query
        named = {field: match[name] for name, field in _FIELDS.items() if name in match}
        more = {"partition": query.get("partition"), **judged.noted, "problem": problem}
        if judged.behalf.certificate:
            more["certificate"] = judged.behalf.certificate
        if judged.via:
            more["via"] = judged.via
        said = {name: value for name, value in more.items() if value not in (None, "")}
        structlog.get_logger().bind(**named, **said).log(
            logging.INFO if result == "done" else logging.WARNING,
            "audit",
            act=act,
            result=result,
            who=judged.behalf.who,
            peer=judged.behalf.peer,
            status=status,
            method=request.method,
            path=request.path[:_LONGEST],
        )


def act_of(request: web.Request) -> str:
    """The audit log's name for a request that changes something."""
    method = "GET" if request.method == "HEAD" else request.method
    operation = operations_of(request.match_info.handler).get(method)
    return OTHER if operation is None else operation.act or OTHER


def result_of(status: int | None) -> str:
    """done; refused: nothing was changed; failed: something may have been changed."""
    if status is None or status >= _FAILED:
        return "failed"
    return "refused" if status >= _REFUSED else "done"
