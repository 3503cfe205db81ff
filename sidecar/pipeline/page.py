"""HTML pages of the jobs: one file each that needs nothing else, with plots (`plots`) in it.

Templates are package data (`templates/`); what they are given is escaped.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from sidecar.pipeline.errors import PipelineError

_YEAR_1_MS: Final = -62_135_596_800_000
_YEAR_10000_MS: Final = 253_402_300_800_000


def render(template: str, **values: Any) -> str:
    """A page out of `templates/<template>`; a name that the template asks for and is not given is an error."""
    environment = Environment(
        loader=PackageLoader("sidecar.pipeline"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["number"] = lambda value: f"{value:,}"
    environment.filters["moment"] = moment
    return environment.get_template(template).render(**values)


def write(path: Path, text: str) -> None:
    """Write a page. Raises `PipelineError` where that cannot be."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise PipelineError(f"{path} cannot be written ({error.strerror}): name another file") from None


def moment(at_ms: int) -> str:
    """Unix ms for people; the number itself where it is in no year that they count: records may bear any."""
    if not _YEAR_1_MS <= at_ms < _YEAR_10000_MS:
        return f"{at_ms} ms"
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
