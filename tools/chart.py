"""The chart of deploy/helm as the archive that Helm installs; the same files make the same bytes."""

from __future__ import annotations

import gzip
import re
import tarfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def package(chart: Path, directory: Path) -> Path:
    """`NAME-VERSION.tgz`, as `helm package` names it; its path."""
    about = (chart / "Chart.yaml").read_text(encoding="utf-8")
    name, version = (re.findall(rf"^{key}: (\S+)$", about, re.MULTILINE)[0] for key in ("name", "version"))
    path = directory / f"{name}-{version}.tgz"
    with (
        path.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for each in sorted(each for each in chart.rglob("*") if each.is_file()):
            member = tarfile.TarInfo(f"{name}/{each.relative_to(chart)}")
            member.size, member.mode = each.stat().st_size, 0o644
            with each.open("rb") as content:
                archive.addfile(member, content)
    return path
