"""`make sbom`: what is in an installation, as CycloneDX has it: every pinned package with its hashes.

    python -m tools.sbom [DIRECTORY]

`kafka-sidecar.cdx.json` is what a node runs, `kafka-sidecar-pipeline.cdx.json` with the jobs on Spark. The same pins
make the same files, byte for byte. Exit code 1 where one lacks a pin, or the hashes of one.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
FILES: Final = {"kafka-sidecar": "requirements/runtime.txt", "kafka-sidecar-pipeline": "requirements/pipeline.txt"}


def write(directory: Path) -> list[Path]:
    """Write the files; their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name, pins in FILES.items():
        path = directory / f"{name}.cdx.json"
        command = (sys.executable, "-m", "cyclonedx_py", "requirements", "--pyproject", "pyproject.toml")
        form = ("--output-reproducible", "--of", "JSON", "-o", str(path), pins)
        subprocess.run((*command, *form), cwd=ROOT, check=True, capture_output=True)
        written.append(path)
    return written


def lacking(bill: Any, pins: str) -> list[str]:
    """What a bill does not say of the pins of a requirements file, and what it says that is none of them."""
    found = {(each["name"], each["version"]): each for each in bill["components"]}
    pinned = set(re.findall(r"^([\w.-]+)==([\w.]+)", pins, re.MULTILINE))
    wrong = [f"{name} {version} is not in it" for name, version in sorted(pinned - found.keys())]
    wrong += [f"{name} {version} is not pinned" for name, version in sorted(found.keys() - pinned)]
    return wrong + [f"{name} {version} has no hash" for (name, version), each in found.items() if not _has_hash(each)]


def _has_hash(component: Any) -> bool:
    references = component.get("externalReferences", ())
    return bool(component.get("hashes")) or any(each.get("hashes") for each in references)


def main() -> int:
    """As the module says."""
    wrong: list[str] = []
    written = write(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist")
    for path, pins in zip(written, FILES.values(), strict=True):
        sys.stdout.write(f"{path}\n")
        wrong += lacking(json.loads(path.read_text()), (ROOT / pins).read_text())
    sys.stdout.writelines(f"{each}\n" for each in wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
