"""deploy/sidecar.toml, an example with every setting, and deploy/sidecar.schema.json, its JSON schema for editors."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING, Final

from sidecar.settings import CONFIG_FILES
from sidecar.settings.loaded import full_name
from sidecar.settings.schema import Schema, is_secret, json_schema, needs

if TYPE_CHECKING:
    from collections.abc import Iterator

_WIDTH: Final = 110
_HEAD: Final = """\
#:schema ./sidecar.schema.json
# Every setting of a node with its default. `python -m docs.generate` writes this file, so copy it before you change it.
# Lines of text begin with "# ", settings with "#": remove the "#" before each setting that you change.
# Nodes read {files}, or the file of --config. Flags and SIDECAR_* variables override it.
# `sidecar check-config` checks it.
"""


def schema() -> str:
    """What `sidecar config schema` prints."""
    return json.dumps(json_schema(), indent=2) + "\n"


def example() -> str:
    """All settings, commented out: those without a default with a value as it may be."""
    files = " or ".join(str(path) if path.is_absolute() else f"./{path}" for path in CONFIG_FILES)
    return _HEAD.format(files=files) + "".join(f"\n{chr(10).join(_setting(name))}\n" for name in Schema.model_fields)


def _setting(name: str) -> Iterator[str]:
    field, found = Schema.model_fields[name], json_schema()["properties"][name]
    said = [f"{field.description}", f"Takes {needs(field)}."]
    if is_secret(name):
        said.append(f"A secret may be in the variable {full_name(name)} instead.")
    if "default" not in found:
        said.append("No default.")
    for line in textwrap.wrap(" ".join(said), _WIDTH, break_long_words=False, break_on_hyphens=False):
        yield f"# {line}"
    value = found["default"] if "default" in found else found["examples"][0]
    yield f"#{name} = {json.dumps(value)}"
