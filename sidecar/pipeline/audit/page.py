"""The page of an audit: verdict, counts, examples, and records over time by producer and by generation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from markupsafe import Markup

from sidecar.pipeline.audit.explained import EXPLAINED, spread_gaps
from sidecar.pipeline.audit.facts import Takeover
from sidecar.pipeline.audit.judge import Audit, Bounds
from sidecar.pipeline.audit.writers import is_data
from sidecar.pipeline.page import render
from sidecar.pipeline.throughput import plots

_TAKEOVERS: Final = 200


@dataclass(frozen=True, slots=True)
class Shown:
    """One topic as the page shows it: data alone, with nothing left in Spark."""

    topic: str
    passes: bool
    records: int
    totals: Mapping[str, int]
    gaps: int
    spread: int
    malformed: int
    bounds: Bounds
    examples: Sequence[Mapping[str, Any]]
    takeovers: Sequence[Takeover]
    plots: Mapping[str, Markup]


def shown(found: Audit, takeovers: Sequence[Takeover]) -> Shown:
    """Gather what a page needs of an audit. Of many takeovers the newest."""
    newest = sorted(takeovers, key=lambda each: each.at_ms)[-_TAKEOVERS:]
    return Shown(
        found.topic, found.passes, found.records, found.totals, found.gaps, found.spread, found.malformed,
        found.bounds, found.examples, newest, plots(found.runs.where(is_data), map(asdict, newest)),
    )  # fmt: skip


def page(audits: Sequence[Shown], cluster_id: str, at_ms: int) -> str:
    """The whole page."""
    return render(
        "audit.html", audits=audits, cluster_id=cluster_id, at_ms=at_ms, explained=EXPLAINED, spread=spread_gaps
    )
