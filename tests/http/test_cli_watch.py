"""`--watch` on a terminal: what the screen shows at its size, keys, and that the terminal is as before in the end."""

import re
import signal
import time
from dataclasses import replace

import pytest

from sidecar.gateway.sequence_ids import State
from sidecar.node.port import AccessMode, Check, Policy, Refusal, Scope, Topic
from tests.http.paper_cli import ORDERS, OWNER, Running
from tests.http.terminal import ENTERED, LEFT, Terminal
from tests.wait import wait_for

pytestmark = pytest.mark.usefixtures("nothing_set")

REFUSED = Refusal("late;mode=exclusive", "10.0.0.9", "t-300", 44, "billing (pid:7) owns it", 12, 0, 0)
BROKEN = """
from types import SimpleNamespace
from sidecar.cli.options import Shared
from sidecar.cli.watching import watch
watch(Shared(), SimpleNamespace(url="http://node"), lambda: 1 / 0, None, None)
"""


def status(running: Running, *more: str, columns: int = 80, rows: int = 24, **environment: str) -> Terminal:
    asked = ("-m", "sidecar", "--admin-url", running.url, "status", "--watch", *more)
    return Terminal(*asked, columns=columns, rows=rows, **environment)


@pytest.fixture
def crowded(running: Running) -> Running:
    """500 topics, three of them in trouble."""
    known = {f"t-{number:03d}": replace(ORDERS, name=f"t-{number:03d}", waiting=[]) for number in range(500)}
    by_partition = Policy(AccessMode.EXCLUSIVE, scope=Scope.PARTITION)
    known["t-200"] = replace(
        known["t-200"], policy=by_partition, partitions=6, owner=None, owners=dict.fromkeys(range(5), OWNER)
    )
    known["t-400"] = replace(known["t-400"], deduplication=State.LOST)
    running.node.known = known
    just_now = replace(REFUSED, last_ms=int(time.time() * 1000))
    running.node.refused = [just_now, replace(REFUSED, topic="t-499")]
    return running


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (120, 40), (200, 50), (30, 8)])
def test_a_screen_has_its_size_with_trouble_first(crowded: Running, columns: int, rows: int):
    with status(crowded, columns=columns, rows=rows) as terminal:
        screen = terminal.shows("of 500 topics")
        assert len(screen) == rows
        assert max(map(len, screen)) <= columns
        names = [line.split()[0] for line in screen if line.startswith("t-")]
        assert names == ["t-400", "t-200", "t-300", *(f"t-{number:03d}" for number in range(497))][: len(names)]
        assert names
        if columns >= 80:
            terminal.shows(
                "node 1 of cluster default",
                "checks ok",
                "5 of 6 owned",
                "ids lost",
                "12 refused",
                "refusals: 2 (24 times)",
            )


def test_the_rows_follow_the_size_and_what_stays_stays(crowded: Running):
    with status(crowded) as terminal:
        few = terminal.shows("of 500 topics")
        terminal.resize(120, 40)
        more = wait_for(lambda: found if len(found := terminal.screen) == 40 else [], "the new size")
        assert sum(line.startswith("t-") for line in more) == sum(line.startswith("t-") for line in few) + 16
        assert more[1].startswith("node 1 of cluster default")


def test_keys_sort_reverse_scroll_and_change_the_table(crowded: Running):
    with status(crowded) as terminal:
        terminal.shows("by trouble")
        terminal.press("s")
        assert terminal.shows("by topic ")[7].startswith("t-000")
        terminal.press("r")
        assert terminal.shows("by topic, reversed")[7].startswith("t-499")
        terminal.press("\x1b[B\x1b[B")
        assert terminal.shows("3-18 of 500")[7].startswith("t-497")
        terminal.press("\x1b[6~")
        terminal.shows("19-34 of 500")
        terminal.press("G")
        assert terminal.shows("485-500 of 500")[22].startswith("t-000")
        terminal.press("\t")
        terminal.shows("1-2 of 2 refusals", "late;mode=exclusive", "44 POLICY_VIOLATION")
        terminal.press("\x1b[1;5Dxyz\x1b[Z")  # keys that do nothing
        terminal.press("\t")
        terminal.shows("by trouble")


@pytest.mark.parametrize(
    ("end", "code"),
    [("q", 0), (signal.SIGINT, 0), *((each, -each) for each in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT))],
)
def test_the_terminal_is_as_before_whatever_ends_it(crowded: Running, end: str | signal.Signals, code: int):
    with status(crowded) as terminal:
        terminal.shows("of 500 topics")
        assert terminal.modes != terminal.before
        if isinstance(end, str):
            terminal.press(end)
        else:
            terminal.process.send_signal(end)
        assert terminal.process.wait(30) == code
        wait_for(lambda: terminal.is_as_before, "the terminal as it was")
        assert terminal.drawn.rpartition(LEFT)[2].strip("\r\n") in ("", "\x1b[?25h")


def test_the_terminal_is_as_before_where_something_fails(nothing_set: None):
    with Terminal("-c", BROKEN) as terminal:
        assert terminal.process.wait(60) == 1
        wait_for(lambda: terminal.is_as_before, "the terminal as it was")
        wait_for(lambda: "ZeroDivisionError" in terminal.drawn.rpartition(LEFT)[2], "what failed, on the main screen")


def test_the_terminal_is_given_back_while_the_command_is_stopped(crowded: Running):
    with status(crowded) as terminal:
        terminal.shows("of 500 topics")
        terminal.process.send_signal(signal.SIGTSTP)
        wait_for(lambda: LEFT in terminal.drawn, "the main screen")
        terminal.process.send_signal(signal.SIGCONT)
        wait_for(lambda: terminal.drawn.count(ENTERED) == 2, "the screen again")
        terminal.press("q")
        assert terminal.process.wait(30) == 0
        wait_for(lambda: terminal.is_as_before, "the terminal as it was")


def test_a_node_that_goes_away_is_said_in_one_line_above_what_was_known(running: Running):
    running.node.readiness = [Check("kafka", False, "no broker\x1b[2J answers"), Check("redis", True, "")]
    with status(running) as terminal:
        terminal.shows(r"kafka fails: no broker\x1b[2J answers", "checks ok: redis", "serving, not ready", "orders ")
        running.node.down = "Redis is away\x1b]0;title\x07"
        terminal.shows(r"Redis is away\x1b]0;title\x07", "orders ")
        running.node.down = ""
        wait_for(lambda: "away" not in terminal.screen[0], "the node again")
        assert "\x1b]0;" not in terminal.drawn


def colors(drawn: str) -> set[str]:
    return {code for each in re.findall(r"\x1b\[([0-9;]*)m", drawn) for code in each.split(";") if code.startswith("3")}


def test_trouble_has_a_colour_unless_nobody_wants_any(crowded: Running):
    with status(crowded) as terminal:
        terminal.shows("ids lost")
        assert {"31", "32", "33"} <= colors(terminal.drawn)
    with status(crowded, NO_COLOR="1") as terminal:
        terminal.shows("ids lost")
        assert colors(terminal.drawn) == set()


def test_a_terminal_that_can_do_nothing_gets_lines(crowded: Running):
    with status(crowded, TERM="dumb") as terminal:
        wait_for(lambda: terminal.drawn.count(crowded.url) >= 2, "two times all of it")
        assert ("t-499" in terminal.drawn, "\x1b[?" in terminal.drawn) == (True, False)
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.process.wait(30) == 0


def test_refusals_are_watched_on_a_screen_too(running: Running):
    running.node.refused = [REFUSED, replace(REFUSED, topic="other", count=99)]
    with Terminal("-m", "sidecar", "--admin-url", running.url, "refusals", "--watch") as terminal:
        assert "t-300" in terminal.shows("1-2 of 2 refusals by time")[3]
        terminal.press("s")
        assert "other" in terminal.shows("by times")[3]
        running.node.refused = []
        terminal.shows("no refusals")


def test_clients_are_a_table_of_their_own(running: Running):
    running.node.known["orders"] = Topic("orders", 1, Policy(AccessMode.EXCLUSIVE))
    with status(running, "--clients") as terminal:
        terminal.shows("1-1 of 1 topics")
        terminal.press("\t")
        terminal.shows("no clients")
