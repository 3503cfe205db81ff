"""Jobs as programs run them: a function each, a session that is lent, errors instead of exit codes."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sidecar.jobs.audit import Asked, audit
from sidecar.jobs.compact import compact
from sidecar.jobs.export import export
from sidecar.jobs.rebuild import rebuild
from sidecar.jobs.report import report
from sidecar.jobs.session import Sessions
from sidecar.pipeline.errors import PipelineError, UnknownTopicError, UsageError
from sidecar.settings import resolve
from tests.conftest import Unique
from tests.services import Services
from tests.slow.pipeline.lake import Log


@pytest.fixture
def log(services: Services, unique: Unique) -> Log:
    found = Log(services.kafka_bootstrap, unique("accounts"))
    found.write(40)
    return found


def test_a_program_runs_jobs_on_a_session_of_its_own(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    told: list[str] = []

    def lent() -> nullcontext[SparkSession]:
        return nullcontext(spark)

    exported = export(log.bootstrap, log.topic, str(tmp_path / "records"), lent, told.append, available_now=True)
    assert (exported.rows, len(DeltaTable(tmp_path / "records").to_pyarrow_table())) == (40, 40)

    path = str(tmp_path / "newest")
    compacted = compact(log.bootstrap, log.topic, lent, told.append, path=path)
    assert compacted.counts.rows == {"key": len(DeltaTable(path).to_pyarrow_table())}

    tables, page = str(tmp_path / "audits"), tmp_path / "audit.html"
    asked = Asked([log.topic], log.bootstrap, log.bootstrap, table=tables, html=page)
    settings = resolve({"bootstrap_servers": log.bootstrap, "cluster": "nobodys"}, None).settings
    (audited,) = audit(asked, settings, lent, told.append)
    assert (audited.records, audited.passes, page.exists()) == (40, True, True)
    assert [each.topic for each in report(tables, [], lent, told.append)] == [log.topic]
    assert sum(each.startswith("40 records in ") for each in told) == 3


@pytest.mark.smoke
def test_what_cannot_be_done_is_told_before_there_is_a_session(services: Services, unique: Unique, log: Log) -> None:
    def lent() -> nullcontext[SparkSession]:
        raise AssertionError("Spark was opened")

    sessions: Sessions = lent
    nowhere, kafka = unique("nowhere"), services.kafka_bootstrap
    settings = resolve({"bootstrap_servers": kafka, "cluster": "nobodys"}, None).settings
    with pytest.raises(UnknownTopicError, match=nowhere):
        export(kafka, nowhere, "/table", sessions, print)
    with pytest.raises(UnknownTopicError, match=nowhere):
        compact(kafka, nowhere, sessions, print, since="now")
    with pytest.raises(UnknownTopicError, match=nowhere):
        audit(Asked([nowhere], kafka, kafka), settings, sessions, print)
    with pytest.raises(UnknownTopicError, match="keep it in the Kafka that they are in front of"):
        rebuild(settings, log.topic, sessions, print)


def test_a_form_that_contradicts_itself_is_a_mistake_of_who_asks(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a schema goes with the format json") as refused:
        export(log.bootstrap, log.topic, str(tmp_path), lambda: nullcontext(spark), print, form="json")
    assert isinstance(refused.value, PipelineError)
