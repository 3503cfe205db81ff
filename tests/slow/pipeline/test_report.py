"""`report`: every record counted once however audits overlap, and what nobody wrote stays out of the page."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from sidecar.jobs.report import TopicReport, apart, page, report_topic
from sidecar.pipeline.audit.facts import Facts, Lag, Takeover
from sidecar.pipeline.audit.tables import SCHEMAS, AuditTables, read_tables
from sidecar.pipeline.tables import TableError
from tests.slow.pipeline.audit.made import Log as Made
from tests.slow.pipeline.audit.made import judged

TOPIC, CLUSTER = "orders", "a-cluster"
MINUTE_MS = 60_000
T0 = 1_767_225_600_000  # 2026-01-01


def audit_row(name: str, at_ms: int, ranges: dict[int, tuple[int, int]], **counts: int) -> tuple[Any, ...]:
    starts, ends = ({index: span[side] for index, span in ranges.items()} for side in (0, 1))
    kinds = [counts.get(kind, 0) for kind in ("duplicates", "regressions", "interleaved", "unowned", "missing")]
    records = sum(ends.values()) - sum(starts.values())
    return (name, CLUSTER, TOPIC, at_ms, starts, ends, not any(kinds), records, *kinds, Decimal(3), 0)


def run_row(audit: str, first: int, last: int, name: str | None, generation: int | None, at: int) -> tuple[Any, ...]:
    records = last - first + 1
    return (
        audit, CLUSTER, TOPIC, 0, first, last, 1, records, 100 * records, 7, 0, 0, records - 1, False, None, None, None,
        None, 0, 0, None, at, at + MINUTE_MS, name, "0", False, "pid:1", generation,
    )  # fmt: skip


def takeover_row(at_ms: int, kind: str, generation: int) -> tuple[Any, ...]:
    event = f"{at_ms:032x}"
    return (CLUSTER, TOPIC, event, at_ms, kind, None, generation, "pid:1", "billing", "exclusive", "", 1, 7, 0, "")


def tables(spark: SparkSession, **rows: list[tuple[Any, ...]]) -> dict[str, DataFrame]:
    return {name: spark.createDataFrame(rows.get(name, []), schema) for name, schema in SCHEMAS.items()}


ranges = st.dictionaries(
    st.integers(0, 2), st.tuples(st.integers(0, 20), st.integers(0, 20)).map(lambda two: (min(two), max(two))),
    min_size=1,
)  # fmt: skip


@given(st.lists(ranges, max_size=8))
def test_no_offset_is_counted_twice_and_no_audit_left_out_without_need(found: list[dict[int, tuple[int, int]]]) -> None:
    rows = [
        {
            "audit": str(number),
            "starts": {partition: start for partition, (start, _) in each.items()},
            "ends": {partition: end for partition, (_, end) in each.items()},
        }
        for number, each in enumerate(found)
    ]

    def offsets(each: dict[int, tuple[int, int]]) -> set[tuple[int, int]]:
        return {(partition, offset) for partition, (start, end) in each.items() for offset in range(start, end)}

    kept, taken = apart(rows), set[tuple[int, int]]()
    for number, each in enumerate(found):
        if str(number) in kept:
            assert not offsets(each) & taken
            taken |= offsets(each)
        else:
            assert offsets(each) & taken


def made(spark: SparkSession) -> TopicReport:
    """Two audits that overlap and one in front of them; two owners; a shadow with a reader that catches up."""
    return report_topic(
        tables(
            spark,
            verdicts=[
                audit_row("old", T0, {0: (0, 100)}, duplicates=2),
                audit_row("whole", T0 + 2, {0: (50, 150)}),
                audit_row("first", T0 + 1, {0: (0, 50)}),
            ],
            runs=[
                run_row("old", 0, 99, "billing", 1, T0),
                run_row("first", 0, 49, "billing", 1, T0),
                run_row("whole", 50, 99, "billing", 1, T0),
                run_row("whole", 100, 147, "_$ledger$ <b>", 2, T0 + MINUTE_MS),
                run_row("whole", 148, 149, None, None, T0 + MINUTE_MS),
            ],
            takeovers=[takeover_row(T0, "claimed", 1), takeover_row(T0 + MINUTE_MS, "claimed", 2)],
            lags=[
                ("old", CLUSTER, TOPIC, T0, "orders-audit", "auditors", 90),
                ("whole", CLUSTER, TOPIC, T0 + 2, "orders-audit", "auditors", 5),
            ],
        ),
        TOPIC,
    )


def test_audits_that_overlap_count_each_record_once(spark: SparkSession) -> None:
    found = made(spark)
    assert found.records == 150
    assert [(each["name"], each["generation"], each["records"], each["bytes"]) for each in found.writers] == [
        ("billing", 1, 100, 10_000),
        ("_$ledger$ <b>", 2, 48, 4_800),
        (None, None, 2, 200),
    ]
    assert [each["records_per_s"] for each in found.writers] == [
        round(100 / 60, 1),
        round(48 / 60, 1),
        round(2 / 60, 1),
    ]
    assert [(each["counted"], each["duplicates"], each["passes"]) for each in found.audits] == [
        (True, 0, True),
        (True, 0, True),
        (False, 2, False),
    ]
    assert found.takeovers_by_kind == {"claimed": 2}
    assert [each["generation"] for each in found.takeovers] == [2, 1]
    assert found.lags == [{"shadow": "orders-audit", "reader": "auditors", "lag": 5, "at_ms": T0 + 2}]


def test_a_page_shows_names_as_they_are_and_runs_nothing_of_them(spark: SparkSession) -> None:
    text = page([made(spark)], CLUSTER, T0)
    assert text.count("<svg") == 3
    assert "<td>_$ledger$ &lt;b&gt;</td>" in text
    assert "<b>" not in text
    assert '<li><i class="s1"></i>_$ledger$ &lt;b&gt;</li>' in text, "the plot's legend has it, too"
    assert "http" not in text, "it needs nothing from anywhere"


def test_times_that_no_calendar_has_are_told_as_numbers_and_not_drawn(spark: SparkSession) -> None:
    """Of clients that count microseconds or nanoseconds."""
    runs = [run_row("first", 0, 9, "billing", 1, T0), run_row("first", 10, 19, "micro", 1, T0 * 1000)]
    runs.append(run_row("first", 20, 29, "nano", 1, T0 * 1_000_000))
    found = report_topic(
        tables(spark, verdicts=[audit_row("first", T0, {0: (0, 30)})], runs=runs, takeovers=[], lags=[]), TOPIC
    )
    text = page([found], CLUSTER, T0)
    assert found.records == 30
    assert f"{T0 * 1000} ms" in text
    assert re.findall(r'<li><i class="s\d"></i>(billing|micro|nano)</li>', text) == ["billing"]


def test_tables_are_read_as_they_were_written(spark: SparkSession, tmp_path: Path) -> None:
    log = Made()
    log.append((7, 0), 0, 1, 2)
    found = judged(spark, log, Facts())
    written = AuditTables(spark, str(tmp_path / "audits"), CLUSTER)
    takeover = Takeover("0" * 32, T0, "claimed", None, 1, "pid:1", "billing", "exclusive", "", 1, 7, 0, "")
    for _ in range(2):
        written.add(found, [takeover], [Lag("orders-audit", "auditors", 1)], T0)
    read, cluster_id = read_tables(spark, str(tmp_path / "audits"))
    assert cluster_id == CLUSTER
    assert {name: frame.count() for name, frame in read.items()} == {
        "runs": 1, "violations": found.totals["unowned"], "verdicts": 1, "takeovers": 1, "lags": 1,
    }  # fmt: skip
    assert report_topic(read, found.topic).records == 3


def test_a_path_without_such_tables_says_what_makes_them(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(TableError, match="sidecar pipeline audit TOPIC --table"):
        read_tables(spark, str(tmp_path / "nothing"))
    spark.range(1).write.format("delta").save(str(tmp_path / "runs"))
    with pytest.raises(TableError):
        read_tables(spark, str(tmp_path))
