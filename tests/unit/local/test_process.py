import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from sidecar.local import process
from sidecar.local.errors import StartError
from sidecar.local.process import Child, Command, Identity
from tests.wait import wait_for


def python(tmp_path: Path, code: str, *arguments: str, **environment: str | None) -> Command:
    program = (sys.executable, "-u", "-c", textwrap.dedent(code), *arguments)
    return Command("the child", program, tmp_path / "child.log", environment)


def ready(child: Child) -> None:
    child.wait_until(lambda: "ready" in child.log_text(), timeout=10)


SLEEPER = "import time; print('ready', flush=True); time.sleep(60)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready'); time.sleep(60)"


def test_a_child_is_stopped_by_sigterm(tmp_path: Path) -> None:
    child = Child.start(python(tmp_path, SLEEPER))
    ready(child)
    assert child.alive
    assert child.stop() == -signal.SIGTERM
    assert not child.alive
    assert child.stop() == -signal.SIGTERM, "stopping again is harmless"


def test_a_child_that_ignores_sigterm_is_killed_after_its_grace(tmp_path: Path) -> None:
    child = Child.start(python(tmp_path, STUBBORN))
    ready(child)
    assert child.stop(grace=0.1) == -signal.SIGKILL


def test_a_paused_child_is_alive_and_can_still_be_stopped(tmp_path: Path) -> None:
    child = Child.start(python(tmp_path, SLEEPER))
    ready(child)
    child.pause()
    wait_for(lambda: "T (stopped)" in Path(f"/proc/{child.pid}/status").read_text(), "the child to be stopped")
    assert child.alive
    assert child.identity.alive()
    assert child.stop(grace=5) == -signal.SIGTERM


def test_a_resumed_child_goes_on(tmp_path: Path) -> None:
    child = Child.start(python(tmp_path, "import time\nwhile True: print('ready'); time.sleep(0.01)"))
    ready(child)
    child.pause()
    wait_for(lambda: "T (stopped)" in Path(f"/proc/{child.pid}/status").read_text(), "the child to be stopped")
    written = len(child.log_text())
    child.resume()
    wait_for(lambda: len(child.log_text()) > written, "the child to write again")
    child.kill()


def test_a_child_that_ends_early_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    child = Child.start(python(tmp_path, "import sys; sys.exit('no such thing as a free port')"))
    with pytest.raises(StartError, match=r"ended with exit code 1(.|\n)*no such thing as a free port"):
        child.wait_until(lambda: False, timeout=10)


def test_a_child_that_stays_silent_is_reported_after_the_timeout(tmp_path: Path) -> None:
    child = Child.start(python(tmp_path, SLEEPER))
    with pytest.raises(StartError, match="not ready within 0 s"):
        child.wait_until(lambda: False, timeout=0.05)
    child.kill()


def test_a_program_that_does_not_exist_is_reported_by_its_name(tmp_path: Path) -> None:
    child = Child.start(Command("nothing", ("no-such-program-anywhere",), tmp_path / "log"))
    with pytest.raises(StartError, match="no-such-program-anywhere"):
        child.wait_until(lambda: False, timeout=10)


def test_a_child_does_not_get_the_signals_of_our_terminal(tmp_path: Path) -> None:
    child = Child.start(python(tmp_path, SLEEPER))
    ready(child)
    assert os.getsid(child.pid) != os.getsid(0)
    assert os.getpgid(child.pid) != os.getpgid(0)
    child.kill()


def test_the_environment_is_laid_over_ours_and_none_removes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_TEST_KEPT", "kept")
    monkeypatch.setenv("LOCAL_TEST_GONE", "there")
    code = "import os; print({n: v for n, v in os.environ.items() if n.startswith('LOCAL_TEST')})"
    child = Child.start(python(tmp_path, code, LOCAL_TEST_GONE=None, LOCAL_TEST_NEW="new"))
    assert child.wait(10) == 0
    assert child.log_text() == "{'LOCAL_TEST_KEPT': 'kept', 'LOCAL_TEST_NEW': 'new'}\n"


def test_each_child_sees_only_its_own_lines_of_a_shared_log(tmp_path: Path) -> None:
    for word in ("first", "second"):
        child = Child.start(python(tmp_path, f"print('{word}')"))
        assert child.wait(10) == 0
        assert child.log_text() == f"{word}\n"
    assert (tmp_path / "child.log").read_text() == "first\nsecond\n"


def test_a_log_that_grew_too_long_is_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LOG_LIMIT", 5)
    for word in ("first", "second"):
        assert Child.start(python(tmp_path, f"print('{word}')")).wait(10) == 0
    assert (tmp_path / "child.log").read_text() == "second\n"
    assert (tmp_path / "child.log.1").read_text() == "first\n"


def test_a_child_ends_with_its_parent_even_when_that_is_killed(tmp_path: Path) -> None:
    code = f"""
        import pathlib, sys, threading, time
        from sidecar.local.process import Child, Command
        def start():  # the thread that asks for a child may end, the child must not
            command = Command("grandchild", (sys.executable, "-c", {SLEEPER!r}), pathlib.Path(sys.argv[1]))
            print("grandchild", Child.start(command).pid)
        thread = threading.Thread(target=start)
        thread.start()
        thread.join()
        time.sleep(60)
    """
    parent = Child.start(python(tmp_path, code, str(tmp_path / "grandchild.log")))
    wait_for(lambda: parent.log_text().endswith("\n"), "the grandchild to be started")
    grandchild = Identity.of(int(parent.log_text().split()[1]))
    log = tmp_path / "grandchild.log"
    wait_for(lambda: log.exists() and "ready" in log.read_text(), "the grandchild to run")
    assert grandchild.alive(), "it outlives the thread that asked for it"
    parent.kill()
    wait_for(lambda: not grandchild.alive(), "the grandchild to end")


def test_a_guard_whose_parent_is_gone_starts_nothing(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    guard = [sys.executable, "-I", "-S", str(process.GUARD), str(gone.pid), "9", "touch", str(tmp_path / "started")]
    assert subprocess.run(guard, capture_output=True, check=False, timeout=10).returncode == 1
    assert not (tmp_path / "started").exists()


def test_a_later_process_with_the_same_id_is_another_one(tmp_path: Path) -> None:
    child = Child.start(python(tmp_path, SLEEPER))
    assert child.identity.alive()
    assert not Identity(child.pid, "another boot/1").alive()
    assert not Identity(child.pid, "").alive()
    child.kill()
    assert not child.identity.alive()
