"""The matrix as a table, for the terminal and for `docs/reference/client-matrix.md`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sidecar.local.jars import DEFAULT_VERSION

from .features import CELLS, CLIENTS, FEATURES, Client, Feature
from .further import KAFKA, ROWS, Further
from .outcome import Outcome, Result, Route
from .over_tls import Logins
from .run import CellId
from .versions import Versions

Section: TypeAlias = Logins | Versions
"""A part of the page that a run of its tests alone writes."""
_MARK = {Outcome.OK: "ok", Outcome.ABSENT: "n/a", Outcome.FAILED: "FAIL"}


@dataclass(frozen=True, slots=True)
class Report:
    """What a session has to tell: results by cell, versions by client, and what stood behind the clients."""

    results: Mapping[CellId, Result]
    versions: Mapping[str, str]
    kafka: str
    nodes: int
    further: Further
    sections: Sequence[Section]

    def routes(self) -> list[Route]:
        """The routes that were taken."""
        return [route for route in Route if any(cell.route is route for cell in self.results)]

    def complete(self, route: Route) -> bool:
        """Every cell of the matrix has a result, and none is a failure."""
        found = [self.results.get(CellId(route, *cell)) for cell in CELLS]
        return all(result is not None and result.passed for result in found)


def as_text(report: Report, route: Route) -> Iterator[str]:
    """Lines for the terminal: the table, then the failures."""
    width = max(len(feature.name) for feature in FEATURES)
    yield f"clients through {_through(report, route)}, Kafka {report.kafka}"
    yield " " * width + "".join(f"  {client.name:>15}" for client in CLIENTS)
    for feature in FEATURES:
        yield f"{feature.name:<{width}}" + "".join(f"  {mark:>15}" for mark in _row(report, route, feature))
    for client in CLIENTS:
        yield f"{client.name}: {report.versions.get(client.name, 'not run')}"
    for cell, result in report.results.items():
        if cell.route is route and not result.passed:
            yield f"FAIL {cell.client}-{cell.feature}: {result.detail}"


def _row(report: Report, route: Route, feature: Feature) -> list[str]:
    found = [report.results.get(CellId(route, client.name, feature.name)) for client in CLIENTS]
    return ["-" if result is None else _MARK[result.outcome] for result in found]


def _through(report: Report, route: Route) -> str:
    if route is Route.DIRECT:
        return "nothing, to Kafka directly"
    return "one node" if report.nodes == 1 else f"{report.nodes} nodes"


def as_markdown(report: Report) -> str:
    """The page of the documentation, from a complete run through nodes."""
    lines = [
        "# Clients and features",
        "",
        "Written by `make test-clients` from its own run: do not edit. Every cell is a test. `ok` means: the client,",
        "unmodified, did all of it; that each address it was told and each connection it had led to a node; and where",
        "records can be told apart in Kafka's log, that they lie there as they were to be written.",
        "",
        f"Run through {_through(report, Route.NODE)} in front of Apache Kafka {report.kafka}. {_direct(report)}",
        "",
        *_versions(report.versions),
    ]
    notes: list[str] = []
    for section in dict.fromkeys(feature.section for feature in FEATURES):
        lines += ["", f"## {section}", "", "| | " + " | ".join(client.title for client in CLIENTS) + " |"]
        lines.append("|---|" + "---|" * len(CLIENTS))
        for feature in FEATURES:
            if feature.section == section:
                lines.append(f"| {feature.title} | " + " | ".join(_cells(report, feature, notes)) + " |")
    for section in report.sections:
        lines += ["", *section.section()]
    lines += ["", *_further(report.further)]
    lines += ["", "## Notes", "", *[f"{number}. {note}" for number, note in enumerate(notes, 1)]]
    return "\n".join([*lines, ""])


def with_section(page: str, section: Section) -> str:
    """The page with this section in place of the one that stands there. Raises ValueError where there is none."""
    lines = "\n".join([*section.section(), "", ""])
    pattern = rf"^{section.heading}$.*?(?=^## )"
    found, count = re.subn(pattern, lambda _: lines, page, count=1, flags=re.MULTILINE | re.DOTALL)
    if not count:
        raise ValueError(f"the page has no section {section.heading!r}: only a whole run writes it")
    return found


def _further(further: Further) -> Iterator[str]:
    yield "## Other clients and applications"
    yield ""
    yield f"Against Apache Kafka {KAFKA} directly, and through two nodes in front of it, with the same result. A dash:"
    yield f"it is about what nodes alone have. Exclusive topics were in front of Apache Kafka {DEFAULT_VERSION}."
    yield ""
    yield "| client | what it did | directly | through nodes |"
    yield "|---|---|---|---|"
    marks = {None: "–", True: "ok", False: "FAIL"}
    for row in ROWS:
        direct, through = (marks[further.result(row, route)] for route in (Route.DIRECT, Route.NODE))
        yield f"| {row.client} | {row.title} | {direct} | {through} |"


def _cells(report: Report, feature: Feature, notes: list[str]) -> Iterator[str]:
    for client in CLIENTS:
        result = report.results[CellId(Route.NODE, client.name, feature.name)]
        note = _note(result, client)
        if note is None:
            yield _MARK[result.outcome]
            continue
        if note not in notes:
            notes.append(note)
        yield f"{_MARK[result.outcome]} [{notes.index(note) + 1}]"


def _note(result: Result, client: Client) -> str | None:
    return f"{client.title}: {result.detail}." if result.outcome is Outcome.ABSENT else None


def _direct(report: Report) -> str:
    if report.complete(Route.DIRECT):
        return "The same scenarios ran against Kafka directly beside it: there every cell but the n/a is `ok`."
    return (
        "Against Kafka directly (`make test-clients ARGS='--through direct'`) the same scenarios have to pass in full."
    )


def _versions(versions: Mapping[str, str]) -> Sequence[str]:
    return [f"- {client.title}: {versions[client.name]}" for client in CLIENTS]
