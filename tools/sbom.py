"""`make sbom`: what is in an installation, as CycloneDX has it: every pinned package with its hashes.

    python -m tools.sbom [DIRECTORY]

`kafka-sidecar.cdx.json` is what a node runs, `kafka-sidecar-pipeline.cdx.json` with the jobs on Spark. The same pins
make the same files, byte for byte.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

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


def main() -> int:
    """As the module says."""
    for path in write(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"):
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
