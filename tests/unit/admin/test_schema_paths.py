"""What a path is about: subjects, reads, writes, and what has no single meaning."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.admin.schema_paths import BadPathError, Kind, Query, is_read, read


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/subjects/s/versions"),
        ("GET", "/subjects/s/versions/latest"),
        ("GET", "/subjects/s/versions/1/schema"),
        ("GET", "/subjects/s/versions/1/referencedby"),
        ("HEAD", "/subjects/s/versions/1"),
        ("POST", "/subjects/s"),
        ("POST", "/subjects/s/"),
        ("GET", "/config/s"),
        ("GET", "/mode/s"),
        ("POST", "/compatibility/subjects/s/versions"),
        ("POST", "/compatibility/subjects/s/versions/latest"),
        ("GET", "/contexts/.eu/subjects/s/versions"),
        ("POST", "/contexts/.eu/compatibility/subjects/s/versions/1"),
    ],
)
def test_reads_of_a_subject(method: str, path: str) -> None:
    found = read(method, path)
    assert (found.kind, found.subject) == (Kind.READS, "s")
    assert is_read(method, path)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/subjects/s/versions"),
        ("DELETE", "/subjects/s"),
        ("DELETE", "/subjects/s/versions/1"),
        ("PUT", "/config/s"),
        ("DELETE", "/config/s"),
        ("POST", "/config/s"),
        ("PUT", "/mode/s"),
        ("DELETE", "/mode/s"),
        ("PUT", "/subjects/s"),
        ("POST", "/subjects/s/anything/new"),
        ("DELETE", "/contexts/.eu/subjects/s"),
        ("POST", "/subjects/s%2Fversions"),
    ],
)
def test_all_else_that_names_a_subject_is_a_write(method: str, path: str) -> None:
    assert read(method, path).kind is Kind.WRITES
    assert not is_read(method, path)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/subjects", Kind.LISTS),
        ("/schemas", Kind.LISTS),
        ("/schemas/ids/7/subjects", Kind.LISTS),
        ("/schemas/ids/7/versions", Kind.LISTS),
        ("/contexts/.eu/subjects", Kind.LISTS),
        ("/schemas/ids/7", Kind.PASSES),
        ("/schemas/ids/7/schema", Kind.PASSES),
        ("/schemas/types", Kind.PASSES),
        ("/config", Kind.PASSES),
        ("/mode", Kind.PASSES),
        ("/contexts", Kind.PASSES),
        ("/", Kind.PASSES),
        ("", Kind.PASSES),
    ],
)
def test_what_names_no_subject(path: str, kind: Kind) -> None:
    assert read("GET", path).kind is kind
    assert read("PUT", path).kind is Kind.PASSES
    assert not is_read("PUT", path)


@pytest.mark.parametrize("path", ["/subjects/s/versions/1/schema", "/schemas/ids/7/schema"])
def test_a_schema_alone_is_not_the_registrys_to_change(path: str) -> None:
    assert read("GET", path).is_raw
    assert not read("GET", "/subjects/schema").is_raw


@pytest.mark.parametrize(
    "path",
    [
        *("//subjects/s", "/subjects//versions", "/subjects/./s", "/subjects/x/../s/versions", "/subjects/%2e%2e/mode"),
        *(
            "/subjects;x=1/s/versions",
            "/subjects/s;x=1/versions",
            "/subjects%2Fs%2Fversions",
            "/config%2Fs",
            "/subjects/s#x",
        ),
        *("/subjects/s/versions%2F1", "/subjects/a%2F..%2Fs/versions", "/subjects/s\\versions", "/subjects/ä", "/a b"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_a_path_that_two_servers_may_read_in_two_ways_is_refused(method: str, path: str) -> None:
    with pytest.raises(BadPathError):
        read(method, path)
    assert method == "GET" or not is_read(method, path)


def test_only_the_subject_is_written_anew() -> None:
    found = read("GET", "/contexts/.eu/subjects/orders%2Daudit-value/versions/la%74est")
    assert (found.subject, found.context) == ("orders-audit-value", ":.eu:")
    assert found.path() == "/contexts/.eu/subjects/orders%2Daudit-value/versions/la%74est"
    assert found.path(":.x:a/b c") == "/contexts/.eu/subjects/%3A.x%3Aa%2Fb%20c/versions/la%74est"


@given(st.text(min_size=1).filter(lambda name: not {".", ".."} & set(name.split("/"))))
def test_any_subject_comes_through_as_it_is(name: str) -> None:
    found = read("GET", f"/subjects/{quote(name, safe='')}/versions/1")
    assert found.subject == name
    assert read("GET", found.path("other")).path(name) == found.path()


@given(st.lists(st.tuples(st.text(min_size=1), st.text())))
def test_other_parameters_stay(pairs: list[tuple[str, str]]) -> None:
    kept = [pair for pair in pairs if pair[0] not in ("subject", "limit")]
    query = Query("").replaced(subject="x")
    for key, value in kept:
        query = Query(f"{query.text}&{quote(key, safe='')}={quote(value, safe='')}")
    changed = query.replaced(subject="a&b", limit=None)
    assert changed.get("subject") == "a&b"
    assert changed.get("limit") is None
    for key, _ in kept:
        assert changed.get(key) == next(value for name, value in kept if name == key)
