"""How a command of the pipeline ends that cannot go on: with a sentence and an exit code, wherever it was noticed."""

from __future__ import annotations

from pathlib import Path

import pytest
from click import ClickException
from click.testing import CliRunner
from pyspark.errors import PySparkException

from sidecar.cli.output import Exit
from sidecar.cli.pipeline.audit import audit
from sidecar.cli.pipeline.report import report
from sidecar.cli.pipeline.running import failure_of
from sidecar.pipeline import points
from sidecar.pipeline.errors import OffsetRangeError, PipelineError, PointError, UnknownTopicError, UnreachableError
from sidecar.pipeline.kafka import Kafka


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnknownTopicError("no topic"), Exit.NOT_FOUND),
        (UnreachableError("nobody"), Exit.UNREACHABLE),
        (PointError("'yesterday' is no point in time"), Exit.USAGE),
        (OffsetRangeError("lost"), Exit.FAILURE),
        (PipelineError("cannot go on"), Exit.FAILURE),
    ],
)
def test_the_same_is_said_of_an_error_here_and_on_an_executor(error: PipelineError, code: Exit) -> None:
    kind = type(error)
    there = PySparkException(
        f"Job aborted: Traceback\n{kind.__module__}.{kind.__name__}: {error}\n at org.apache.spark"
    )
    for raised in (error, there):
        failure = failure_of(raised)
        assert isinstance(failure, ClickException)
        assert (failure.message, failure.exit_code) == (str(error), code)


def test_what_nobody_meant_to_say_is_left_to_be_seen() -> None:
    assert failure_of(PySparkException("out of memory")) is None
    assert failure_of(KeyError("x")) is None


@pytest.mark.parametrize("text", ["", "yesterday", "{", "{}", '{"0": "5"}', '{"x": 5}'])
def test_what_is_no_point_in_time_is_a_mistake_of_the_command_line(text: str) -> None:
    with pytest.raises(PointError) as raised:
        points.resolve(text, Kafka.__new__(Kafka), points.Extent("orders", {0: 0}, {0: 9}))  # nobody is asked
    failure = failure_of(raised.value)
    assert failure is not None
    assert failure.exit_code == Exit.USAGE


def test_a_page_that_could_not_be_written_in_the_end_is_refused_in_the_beginning(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for command in (audit, report):
        for place in ("nowhere/page.html", "file/page.html", "."):
            result = CliRunner().invoke(command, ["something", "--html", str(tmp_path / place)])
            assert result.exit_code == Exit.USAGE, result.output
            assert "starting Spark" not in result.output
