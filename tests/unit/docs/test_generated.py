"""The pages of `docs/` that follow from the code are what the code says today."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

import sidecar.client
from docs.generate import DOCS, PAGES, file_map, licences, markdown
from sidecar.gateway.apis.table import ALL_APIS, NOT_SERVED
from sidecar.settings import ENV_PREFIX
from sidecar.settings.schema import Schema
from tests.unit.docs.pages import ROOT


@cache
def generated(name: str) -> str:
    """A page; some take seconds."""
    return PAGES[name]()


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_current(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == generated(name), "python -m docs.generate writes it anew"


def test_every_api_stands_in_the_table_once() -> None:
    rows = [line.split(" | ")[0] for line in generated("reference/api-table.md").splitlines()]

    assert [rows.count(f"| {key}") for key in (*ALL_APIS, *NOT_SERVED)] == [1] * (len(ALL_APIS) + len(NOT_SERVED))


def test_every_setting_is_described() -> None:
    page = generated("reference/settings.md")

    assert [name for name in Schema.model_fields if f"| `{ENV_PREFIX}{name.upper()}` |" not in page] == []


def test_every_name_of_the_client_library_is_described() -> None:
    page = generated("reference/sdk.md")

    assert [name for name in sidecar.client.__all__ if f"## `{name}`" not in page and f"| `{name}`" not in page] == []


def test_every_pinned_package_has_a_licence() -> None:
    page = generated("reference/licences.md")
    pinned = licences.pins("runtime.txt")

    assert [name for name, version in pinned.items() if f"| {name} | {version} | " not in page] == []
    assert len(pinned) > 20


def test_a_bar_within_a_cell_does_not_end_it() -> None:
    assert markdown.table(("a",), [("x|y",)]) == ["| a |", "|---|", "| x\\|y |"]


def test_a_module_stands_in_the_file_map_with_its_first_sentence() -> None:
    lines = generated("internals/file-map.md").splitlines()

    assert "- `sidecar/fencing/slot.py`: " + file_map.first_sentence(ROOT / "sidecar" / "fencing" / "slot.py") in lines
    assert [line for line in lines if line.endswith("`: ")] == []


@pytest.mark.parametrize(
    ("docstring", "sentence"),
    [
        ("Reads a log. And more.", "Reads a log."),
        ("`a`: short, e.g. this. More.", "`a`: short, e.g. this."),
        ("One that has many words: and the rest of it.", "One that has many words."),
        ("No end", "No end"),
    ],
)
def test_a_first_sentence_ends_where_it_does(tmp_path: Path, docstring: str, sentence: str) -> None:
    (tmp_path / "module.py").write_text(f'"""{docstring}"""\n', encoding="utf-8")

    assert file_map.first_sentence(tmp_path / "module.py") == sentence
