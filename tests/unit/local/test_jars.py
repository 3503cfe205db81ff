"""The class path of Kafka from a Maven repository in a directory: every rule except the network itself."""

import hashlib
import re
import socket
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from jgo.maven import MavenContext

from sidecar.local import jars
from sidecar.local.errors import ResolveError
from sidecar.local.jars import LOCKS, Jars, Locked, read_lock, resolve
from sidecar.local.java import find_java
from sidecar.local.progress import Step

SHIPPED = ["3.9.1", "4.1.1", "4.3.1", "4.4.0"]


@pytest.mark.parametrize("version", SHIPPED)
def test_a_lock_names_a_broker_its_tools_and_one_way_to_log(version: str) -> None:
    lock = read_lock(version)
    assert lock is not None
    names = [entry.coordinate for entry in lock]
    assert f"org.apache.kafka:kafka_2.13:{version}" in names
    assert f"org.apache.kafka:kafka-tools:{version}" in names
    assert len(names) == len(set(names)) > 80
    assert all(re.fullmatch(r"[\w.-]+:[\w.-]+:[\w.-]+", name) for name in names)
    assert all(re.fullmatch(r"[0-9a-f]{64}", entry.sha256) for entry in lock)
    bindings = [name for name in names if re.match(r"org\.slf4j:slf4j-(?!api)|.*:log4j-slf4j", name)]
    assert bindings == ["org.slf4j:slf4j-simple:1.7.36"]


@pytest.mark.parametrize("path", list(LOCKS.iterdir()), ids=lambda path: path.name)
def test_a_lock_holds_no_address(path: Path) -> None:
    assert "://" not in path.read_text()


def test_a_version_without_a_lock_has_none() -> None:
    assert read_lock("0.8.0") is None


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, bytes], Locked]:
    """A local Maven repository, a cache and a lock of version 9.9.9, all empty; calling it adds a jar to the lock.

    Nothing can be downloaded: where the code tries to, it gets what the test puts into `remote`.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("M2_REPO", str(tmp_path / "m2"))
    monkeypatch.setenv("JGO_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setattr(jars, "LOCKS", tmp_path / "locks")
    (tmp_path / "locks").mkdir()
    monkeypatch.setattr(jars, "_context", lambda: MavenContext(repo_cache=tmp_path / "m2", remote_repos={}))

    def add(name: str, content: bytes) -> Locked:
        entry = Locked(f"org.example:{name}:1.0", hashlib.sha256(content).hexdigest())
        with (tmp_path / "locks" / "kafka-9.9.9.txt").open("a") as lock:
            lock.write(f"{entry.coordinate} {entry.sha256}\n")
        return entry

    return add


def put(tmp_path: Path, name: str, content: bytes) -> Path:
    path = tmp_path / "m2" / "org" / "example" / name / "1.0" / f"{name}-1.0.jar"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_the_class_path_has_the_order_of_the_lock(repository, tmp_path: Path) -> None:
    paths = []
    for name in ("b", "a", "c"):
        repository(name, name.encode())
        paths.append(put(tmp_path, name, name.encode()))
    assert resolve("9.9.9") == Jars("9.9.9", tuple(paths))
    assert resolve("9.9.9").class_path == ":".join(map(str, paths))


@pytest.mark.parametrize("name", ["plain", "with space", 'with"quote', "with\\backslash"])
def test_the_argument_file_means_the_class_path(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    home = tmp_path / name
    home.mkdir()
    paths = tuple(home / f"{letter}.jar" for letter in "ab")
    argument = Jars("4.1.1", paths).argument
    flags = (argument, "-XshowSettings:properties", "-version")
    told = subprocess.run([find_java().path, *flags], capture_output=True, text=True, check=True)
    seen = re.search(r"java\.class\.path = (\S.*)\n\s+(\S.*)\n", told.stderr)
    assert seen is not None
    assert seen.groups() == tuple(map(str, paths))


def test_progress_counts_the_jars(repository, tmp_path: Path) -> None:
    for name in ("a", "b"):
        repository(name, b"x")
        put(tmp_path, name, b"x")
    steps: list[Step] = []
    resolve("9.9.9", steps.append)
    assert [(step.done, step.total) for step in steps] == [(0, 2), (1, 2), (2, 2)]
    assert [step.finished for step in steps] == [False, False, True]


def test_a_second_time_neither_hashes_nor_downloads(
    repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository("a", b"x")
    put(tmp_path, "a", b"x")
    first = resolve("9.9.9")

    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("a warm start must not come here")

    monkeypatch.setattr(jars, "_fetch", forbidden)
    monkeypatch.setattr(socket, "socket", forbidden)
    assert resolve("9.9.9") == first


def test_a_jar_that_was_cut_short_is_noticed_and_looked_for_again(repository, tmp_path: Path) -> None:
    repository("a", b"the whole jar")
    path = put(tmp_path, "a", b"the whole jar")
    resolve("9.9.9")
    path.write_bytes(b"the who")
    with pytest.raises(ResolveError, match="could not be brought"):
        resolve("9.9.9")
    assert not path.exists(), "what is not the jar does not stay where the next try would find it"
    put(tmp_path, "a", b"the whole jar")
    assert resolve("9.9.9").paths == (path,)


def test_a_jar_other_than_the_locked_one_is_never_used(
    repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository("a", b"as it should be")
    downloads: list[str] = []

    def download(self: object, artifact) -> Path:
        downloads.append(str(artifact))
        return put(tmp_path, "a", b"something else of somebody else")

    monkeypatch.setattr("jgo.maven.PythonResolver.download", download)
    with pytest.raises(ResolveError, match="SHA-256 differs"):
        resolve("9.9.9")
    assert len(downloads) > 1, "a broken download deserves another try"
    assert not list((tmp_path / "m2").rglob("*.jar"))


def test_a_download_that_fails_is_tried_again(repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository("a", b"x")
    attempts: list[int] = []

    def download(self: object, artifact) -> Path:
        attempts.append(1)
        path = put(tmp_path, "a", b"")
        if len(attempts) < 3:
            raise ConnectionError("reset by peer")
        path.write_bytes(b"x")
        return path

    monkeypatch.setattr("jgo.maven.PythonResolver.download", download)
    assert len(resolve("9.9.9").paths) == 1
    assert len(attempts) == 3


def test_without_a_network_the_message_says_what_is_needed(repository) -> None:
    repository("a", b"x")
    with pytest.raises(ResolveError, match=r"could not be brought from Maven Central(.|\n)*needed once(.|\n)*proxy"):
        resolve("9.9.9")


def test_a_cache_that_cannot_be_written_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(ResolveError, match=r"file/kafka-sidecar cannot hold .*XDG_CACHE_HOME"):
        resolve()


def test_a_damaged_jar_of_an_unlocked_version_is_removed(tmp_path: Path) -> None:
    good, bad, cut = (tmp_path / name for name in ("good.jar", "bad.jar", "cut.jar"))
    for path in (good, bad):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a", b"content " * 100)
    jars._check_archives([good])
    damaged = bytearray(bad.read_bytes())
    damaged[60:64] = b"????"
    bad.write_bytes(damaged)
    cut.write_bytes(good.read_bytes()[:50])
    for path in (bad, cut):
        with pytest.raises(ResolveError, match="was damaged"):
            jars._check_archives([good, path])
        assert not path.exists()
    assert good.exists()
