import os
from pathlib import Path

import pytest

from sidecar.local.class_archive import ClassArchive
from sidecar.local.jars import Jars
from sidecar.local.java import Java


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "kafka-sidecar").mkdir()
    (tmp_path / "java").touch()
    return tmp_path


def archive(cache: Path, major: int = 17, *jar_names: str) -> ClassArchive:
    return ClassArchive.of(Java(cache / "java", major), Jars("4.1.1", tuple(map(Path, jar_names or ("a.jar",)))))


def draft(flags: tuple[str, ...]) -> Path:
    return Path(flags[0].partition("=")[2])


@pytest.mark.parametrize(
    ("major", "dump", "use"),
    [(17, "ArchiveClassesAtExit", "SharedArchiveFile"), (25, "AOTCacheOutput", "AOTCache")],
)
def test_a_complete_dump_is_used_afterwards(cache: Path, major: int, dump: str, use: str) -> None:
    first = archive(cache, major)
    assert not first.flags_to_use()
    flags = first.flags_to_dump()
    assert flags[0].startswith(f"-XX:{dump}=")
    draft(flags).write_bytes(b"classes")
    assert not archive(cache, major).exists, "a dump under way is nothing to use"
    first.adopt(complete=True)
    assert archive(cache, major).flags_to_use()[0] == f"-XX:{use}={archive(cache, major).path}"


def test_an_incomplete_dump_is_thrown_away(cache: Path) -> None:
    one = archive(cache)
    draft(one.flags_to_dump()).write_bytes(b"half")
    one.adopt(complete=False)
    assert not one.exists
    assert not draft(one.flags_to_dump()).exists()


def test_a_process_that_dumped_nothing_changes_nothing(cache: Path) -> None:
    archive(cache).adopt(complete=True)
    assert not archive(cache).exists


def test_what_a_killed_process_left_is_removed_by_a_later_dump(cache: Path) -> None:
    paths = [draft(archive(cache, 25).flags_to_dump()) for _ in range(3)]
    paths[1] = paths[1].with_name(f"{paths[1].name}.config")
    for path in paths:
        path.write_bytes(b"half")
    for path in paths[:2]:
        os.utime(path, (0, 0))
    archive(cache, 25).flags_to_dump()
    assert [path.exists() for path in paths] == [False, False, True], "the youngest may still be in the making"


def test_two_processes_dump_into_different_files(cache: Path) -> None:
    assert draft(archive(cache).flags_to_dump()) != draft(archive(cache).flags_to_dump())


def test_another_runtime_or_class_path_has_another_archive(cache: Path) -> None:
    paths = {archive(cache).path, archive(cache, 21).path, archive(cache, 17, "a.jar", "b.jar").path}
    (cache / "java").write_text("upgraded")
    paths.add(archive(cache).path)
    assert len(paths) == 4


def test_nothing_of_it_reaches_the_standard_output_of_a_tool(cache: Path) -> None:
    one = archive(cache)
    draft(one.flags_to_dump()).write_bytes(b"classes")
    one.adopt(complete=True)
    assert "-Xlog:all=error:stderr" in one.flags_to_use()
    assert one.flags_to_use().index("-Xlog:disable") < one.flags_to_use().index("-Xlog:all=error:stderr")
