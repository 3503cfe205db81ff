"""The tables of the matrix and what is made of them: nothing passes that they do not allow, and no cell stays empty."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from .absences import ABSENCES, AIOKAFKA, KAFKA_PYTHON, LIBRDKAFKA, NoAttribute, NoJavaName, NoMention
from .features import CELLS, CLIENT, CLIENTS, FEATURE, FEATURES
from .further import CONNECT, DEBEZIUM, FLINK, FLINK_CONNECTOR, FRANZ_GO, KADM, KAFKA, OLD_JAVA, ROWS, Further, Row
from .locks import LOCKS
from .outcome import Outcome, Result, Route, judge
from .over_tls import ALL, Logins
from .over_tls import CELLS as LOGINS
from .report import Report, as_markdown, as_text, with_section
from .run import CellId
from .secured_recipes import MECHANISMS
from .stored import WITNESSES
from .test_upstream_versions import CORE
from .versions import CELLS as VERSIONS
from .versions import JAVA, Versions

ABSENT = ("confluent-kafka", "quotas")
ORDINARY = ("java-client", "quotas")


def test_names_are_given_once_and_tables_speak_of_cells_that_exist() -> None:
    assert len(FEATURE) == len(FEATURES)
    assert len(CLIENT) == len(CLIENTS)
    assert set(ABSENCES) <= set(CELLS)
    assert set(WITNESSES) | set(CORE) <= set(FEATURE)


def test_every_feature_is_something_that_at_least_two_clients_can_do() -> None:
    able = {
        feature: [client for client, row in CELLS if row == feature and (client, row) not in ABSENCES]
        for feature in FEATURE
    }
    assert {feature for feature, clients in able.items() if len(clients) < 2} == set()


@pytest.mark.parametrize(
    ("place", "answered", "counts_as"),
    [
        (ORDINARY, "ok", Outcome.OK),
        (ORDINARY, "failed", Outcome.FAILED),
        (ORDINARY, "n/a", Outcome.FAILED),
        (ABSENT, "n/a", Outcome.ABSENT),
        (ABSENT, "ok", Outcome.FAILED),
        (ABSENT, "failed", Outcome.FAILED),
        (("aiokafka", "group-protocol-consumer"), "n/a", Outcome.ABSENT),
    ],
)
def test_an_answer_counts_only_where_the_tables_allow_it(
    place: tuple[str, str], answered: str, counts_as: Outcome
) -> None:
    assert judge(*place, {"outcome": answered, "detail": "why"}, 1.0).outcome is counts_as


@pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated")  # said of kafka-python when it is imported
@pytest.mark.parametrize(
    "evidence",
    [
        NoAttribute(LIBRDKAFKA, "create_topics"),
        NoAttribute(AIOKAFKA, "delete_records"),
        NoAttribute(KAFKA_PYTHON, "acl"),
        NoMention("kafka.coordinator", "CooperativeSticky"),
    ],
)
def test_evidence_of_an_absence_fails_once_the_client_has_the_feature(evidence: NoAttribute | NoMention) -> None:
    with pytest.raises(AssertionError, match="write the scenario"):
        evidence.verify(())


def test_evidence_from_a_jar_fails_once_a_class_has_the_name(tmp_path: Path) -> None:
    jar = tmp_path / "kafka-clients-4.1.1.jar"
    for constants, found in ((b"\x01\x00\x0calterConfigs", True), (b"\x01\x00\x17incrementalAlterConfigs", False)):
        with zipfile.ZipFile(jar, "w") as archive:
            archive.writestr("org/apache/kafka/clients/admin/Admin.class", b"\xca\xfe\xba\xbe" + constants + b"\x07")
        evidence = NoJavaName("kafka-clients", "org/apache/kafka/clients/admin/", "alterConfigs")
        if found:
            with pytest.raises(AssertionError, match=r"Admin\.class"):
                evidence.verify([jar])
        else:
            evidence.verify([jar])


def full(route: Route) -> dict[CellId, Result]:
    """A run in which all is as the tables say."""

    def of(client: str, feature: str) -> Result:
        if absence := ABSENCES.get((client, feature)):
            return Result(Outcome.ABSENT, absence.reason)
        return Result(Outcome.OK, "note")

    return {CellId(route, *cell): of(*cell) for cell in CELLS}


def further(*, rows: tuple[Row, ...] = ROWS, failing: str = "") -> Further:
    """As after a session in which each of these rows had a test at nodes alone, and one failed."""
    found = Further()
    for row in rows:
        item = cast("pytest.Item", _Item(row.name))
        found.plan(item)
        phases = ("setup",) if (row, failing) == (rows[0], "setup") else ("setup", "call", "teardown")
        for when in phases:
            found.note(item, cast("pytest.TestReport", _Phase(when, when != failing or row is not rows[0])))
    return found


@dataclass(frozen=True)
class _Item:
    row: str
    nodeid: str = "test"
    compares: bool = False

    def iter_markers(self, name: str) -> list[pytest.Mark]:
        return [getattr(pytest.mark, name)(self.row, compares=self.compares).mark]


@dataclass(frozen=True)
class _Phase:
    when: str
    passed: bool


def report(results: dict[CellId, Result]) -> Report:
    versions = {client.name: f"{client.title} 1.2.3" for client in CLIENTS}
    return Report(results, versions, "4.1.1", 2, further(), (logins(), minors()))


def logins(*, failing: str = "", left_out: bool = False) -> Logins:
    """As after a session with all logins, the first of which failed in a phase or was not run."""
    found = Logins()
    for client, mechanism in LOGINS[left_out:]:
        item = cast("pytest.Item", _Login(_Parameters({"client": client, "mechanism": mechanism})))
        is_first = (client, mechanism) == LOGINS[0]
        for when in ("setup",) if is_first and failing == "setup" else ("setup", "call", "teardown"):
            found.note(item, cast("pytest.TestReport", _Phase(when, not (is_first and when == failing))))
    return found


def minors() -> Versions:
    """As after a session in which the newest Java client failed, and all others passed."""
    return Versions({cell: cell != ("java", JAVA[-1]) for cell in VERSIONS})


@dataclass(frozen=True)
class _Parameters:
    params: dict[str, str]


@dataclass(frozen=True)
class _Login:
    callspec: _Parameters


def test_a_run_is_complete_only_when_every_cell_has_passed() -> None:
    results = full(Route.NODE)
    assert report(results).complete(Route.NODE)
    assert not report(results).complete(Route.DIRECT)
    cell = CellId(Route.NODE, *ORDINARY)
    assert not report({**results, cell: Result(Outcome.FAILED, "no")}).complete(Route.NODE)
    del results[cell]
    assert not report(results).complete(Route.NODE)


def test_the_terminal_shows_every_cell_and_names_what_failed() -> None:
    cell = CellId(Route.NODE, *ORDINARY)
    lines = list(as_text(report({**full(Route.NODE), cell: Result(Outcome.FAILED, "it did not")}), Route.NODE))
    rows = {line.split()[0]: line.split()[1:] for line in lines if line.split()[0] in FEATURE}
    assert set(rows) == set(FEATURE)
    assert all(len(marks) == len(CLIENTS) and "-" not in marks for marks in rows.values())
    assert rows["quotas"] == ["n/a", "n/a", "n/a", "ok", "FAIL"]
    assert lines[-1] == "FAIL java-client-quotas: it did not"


def test_the_page_has_a_mark_in_every_cell_and_a_note_for_each_that_is_not_ok() -> None:
    page = as_markdown(report(full(Route.NODE)))
    rows = [line for line in page.splitlines() if line.startswith("| ") and "---" not in line]
    sections = len({feature.section for feature in FEATURES}) + 3
    assert len(rows) == len(FEATURES) + len(ROWS) + len(MECHANISMS) + 3 + sections
    assert [row for row in rows if "FAIL" in row] == [f"| Java kafka-clients | {JAVA[-1]} | FAIL |"]
    marks = [mark.strip() for row in rows if "| client |" not in row for mark in row.strip("|").split("|")[1:]]
    assert all(marks)
    noted = {mark.split("[")[1].rstrip("]") for mark in marks if "[" in mark}
    notes = [line.split(".")[0] for line in page.split("## Notes")[1].splitlines() if line]
    assert sorted(noted, key=int) == notes


def test_the_page_speaks_of_direct_kafka_only_after_a_run_against_it() -> None:
    both = {**full(Route.NODE), **full(Route.DIRECT)}
    assert "ran against Kafka directly beside it" in as_markdown(report(both))
    assert "ran against Kafka directly beside it" not in as_markdown(report(full(Route.NODE)))


def test_a_row_passes_when_all_of_its_tests_were_run_and_none_failed() -> None:
    first = ROWS[0]
    assert further().complete()
    assert (further().result(first, Route.NODE), further().result(first, Route.DIRECT)) == (True, None)
    assert not further(rows=ROWS[1:]).complete(), "one was not run"
    for when in ("setup", "call", "teardown"):
        assert further(failing=when).result(first, Route.NODE) is False
    both = further()
    both.plan(cast("pytest.Item", _Item(first.name, compares=True)))
    assert both.result(first, Route.DIRECT) is False, "it compares both, and was not run"
    other = further()
    other.plan(cast("pytest.Item", _Item(first.name, "deselected")))
    assert other.result(first, Route.NODE) is False


def test_logins_are_complete_when_each_client_has_passed_with_each_of_its_mechanisms() -> None:
    assert logins().complete()
    assert not logins(left_out=True).complete()
    for when in ("setup", "call", "teardown"):
        failed = logins(failing=when)
        assert not failed.complete()
        assert "FAIL" in "".join(failed.section())


def test_a_run_of_logins_alone_writes_their_section_and_nothing_else_of_the_page() -> None:
    page = as_markdown(report(full(Route.NODE)))
    assert with_section(page, logins()) == page
    changed = with_section(page, logins(failing="call"))
    before, _, after = changed.partition("| FAIL |")
    assert page == before + "| ok |" + after
    assert changed.count(Logins.heading) == 1
    section = changed.partition(Logins.heading)[2].partition("## ")[0]
    assert [line.count("|") for line in section.splitlines() if "FAIL" in line] == [len(ALL) + 2]
    with pytest.raises(ValueError, match="only a whole run writes it"):
        with_section(page.replace(Logins.heading, "## Another"), logins())


def test_the_last_rows_are_named_once_and_have_the_versions_that_are_run() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    go = (Path(__file__).with_name("console") / "go.mod").read_text()
    assert f"github.com/twmb/franz-go/pkg/kadm v{KADM}\n" in go
    go = (Path(__file__).with_name("sharing") / "go.mod").read_text()
    assert f"github.com/twmb/franz-go v{FRANZ_GO}\n" in go
    assert f"org.apache.kafka:connect-runtime:{CONNECT} " in (LOCKS / "debezium.txt").read_text()
    assert f"io.debezium:debezium-connector-postgres:{DEBEZIUM} " in (LOCKS / "debezium.txt").read_text()
    assert f"org.apache.flink:flink-clients:{FLINK} " in (LOCKS / f"flink-{FLINK}.txt").read_text()
    assert f"org.apache.flink:flink-connector-kafka:{FLINK_CONNECTOR} " in (LOCKS / f"flink-{FLINK}.txt").read_text()
    assert f"org.apache.kafka:kafka-streams:{KAFKA} " in (LOCKS / f"kafka-streams-{KAFKA}.txt").read_text()
    for version in OLD_JAVA:
        assert f"org.apache.kafka:kafka-clients:{version} " in (LOCKS / f"kafka-clients-{version}.txt").read_text()
