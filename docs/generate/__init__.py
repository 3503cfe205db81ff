"""The pages of `docs/` that follow from the code, one module each; `python -m docs.generate` writes them.

A page is a function without arguments that returns its whole text. Nothing here reads the page that is there already,
so what somebody wrote into one by hand is gone with the next run; tests/unit/docs holds that they are current.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from docs.generate import api_table, chart, cli, decisions, file_map, licences, metrics, sdk, settings, settings_file

if TYPE_CHECKING:
    from collections.abc import Callable

DOCS: Final = Path(__file__).resolve().parents[1]

PAGES: Final[dict[str, Callable[[], str]]] = {
    "decisions/README.md": decisions.page,
    "internals/file-map.md": file_map.page,
    "reference/api-table.md": api_table.page,
    "reference/cli.md": cli.page,
    "reference/metrics.md": metrics.page,
    "reference/sdk.md": sdk.page,
    "reference/settings.md": settings.page,
    "reference/licences.md": licences.page,
    "../deploy/sidecar.schema.json": settings_file.schema,
    "../deploy/sidecar.toml": settings_file.example,
    "../deploy/helm/kafka-sidecar/rules.yaml": chart.rules,
    "../deploy/helm/kafka-sidecar/values.schema.json": chart.schema,
}
"""Text by path below `docs/`."""
