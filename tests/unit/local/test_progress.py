import io

import pytest
from rich.console import Console

from sidecar.local.progress import ProgressDisplay, Step


@pytest.mark.parametrize(("done", "total", "finished"), [(0, 0, False), (0, 1, False), (1, 2, False), (2, 2, True)])
def test_a_part_is_finished_when_all_of_it_is_done(done: int, total: int, finished: bool) -> None:
    assert Step("part", "text", done, total).finished is finished


def test_a_terminal_shows_one_line_per_part() -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=100, color_system=None)
    with ProgressDisplay(console) as display:
        display(Step("jars", "downloading Kafka", 0, 93))
        display(Step("jars", "downloading Kafka", 93, 93))
        display(Step("kafka", "starting Kafka 4.1.1"))
        display(Step("kafka", "Kafka 4.1.1 on 127.0.0.1:29092", 1, 1))
    last = output.getvalue().split("downloading")[-1]
    assert "93/93" in last
    assert "✓" in last
    assert "Kafka 4.1.1 on 127.0.0.1:29092" in last
    assert "starting" not in last


def test_a_file_gets_each_text_once() -> None:
    output = io.StringIO()
    with ProgressDisplay(Console(file=output, width=100)) as display:
        for done in range(4):
            display(Step("jars", "downloading Kafka", done, 3))
        display(Step("kafka", "Kafka on [::1]:9092", 1, 1))
    assert output.getvalue() == "downloading Kafka\nKafka on [::1]:9092\n"
