"""The helper that runs nodes sees what must fail a test."""

from pathlib import Path

import pytest

from tests.nodes import NodeProcess


def node(tmp_path: Path, log: str) -> NodeProcess:
    (tmp_path / "node-c-1.log").write_text(log)
    return NodeProcess(tmp_path, "127.0.0.1:1", "redis://127.0.0.1:2/0", cluster="c")


@pytest.mark.parametrize(
    "line",
    [
        "Traceback (most recent call last):",
        '{"level": "error", "event": "Task exception was never retrieved"}',
        "Exception ignored in: <function f at 0x1>",
        "RuntimeWarning: coroutine 'f' was never awaited",
        "Task was destroyed but it is pending!",
        "Fatal Python error: Segmentation fault",
    ],
)
def test_an_uncaught_exception_fails_the_test_and_shows_what_surrounds_it(tmp_path: Path, line: str) -> None:
    with pytest.raises(AssertionError, match=r"uncaught exception:\n.*serving(.|\n)*after"):
        node(tmp_path, f'{{"event": "serving"}}\n{line}\nafter\n').check_log()
    node(tmp_path, line).check_log(allow=line[:10].replace("(", r"\(").replace("{", r"\{"))


def test_an_ordinary_log_passes(tmp_path: Path) -> None:
    node(tmp_path, '{"level": "warning", "event": "upstream_lost", "error": "Connection reset by peer"}\n').check_log()


def test_a_node_that_was_never_started_has_an_empty_log(tmp_path: Path) -> None:
    silent = NodeProcess(tmp_path, "127.0.0.1:1", "redis://127.0.0.1:2/0", cluster="other")
    assert silent.log == ""
    silent.check_log()
