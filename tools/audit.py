"""`make audit`: known vulnerabilities of every pinned package, as the advisories of PyPI or OSV have them.

    python -m tools.audit [pip-audit's options, such as --vulnerability-service osv]

The exit code is 0 where all were looked up and none is known, 1 where one is, 2 where packages could not be looked up:
a machine that reaches no advisories has found nothing, which says nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
FILES: Final = tuple(f"requirements/{name}.txt" for name in ("runtime", "pipeline", "dev", "dist"))
"""What nodes run, what the jobs on Spark take besides, and what developers and CI have."""
_SHOWN: Final = 10


@dataclass(slots=True)
class Found:
    """Of some files: how many packages were looked up, and what is known of them."""

    looked_up: set[str] = field(default_factory=set)
    known: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    def read(self, report: dict[str, Any]) -> None:
        """Add a report of pip-audit."""
        for each in report["dependencies"]:
            package = f"{each['name']} {each.get('version', '')}".strip()
            if "skip_reason" in each:
                self.skipped[package] = each["skip_reason"]
                continue
            self.looked_up.add(package)
            for known in each["vulns"]:
                mended = f", mended in {', '.join(known['fix_versions'])}" if known["fix_versions"] else ""
                line = f"{package}: {known['id']}{mended}"
                if line not in self.known:
                    self.known.append(line)

    @property
    def verdict(self) -> tuple[int, str]:
        """The exit code, and what is said."""
        lines = [*self.known]
        if self.skipped:
            names = sorted(self.skipped)
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            lines.append(f"{len(names)} packages were NOT looked up: {', '.join(names[:_SHOWN])}{more}")
            lines += sorted({reason.split(":", 1)[0] for reason in self.skipped.values()})
        if not self.looked_up:
            lines.append("NOTHING WAS AUDITED: no advisory service answers for these packages from here")
        else:
            lines.append(f"{len(self.looked_up)} packages looked up, {len(self.known)} vulnerabilities known")
        code = 1 if self.known else 2 if self.skipped or not self.looked_up else 0
        return code, "\n".join(lines)


def audit(files: tuple[str, ...], options: list[str]) -> Found:
    """Look up all packages of these files. Raises SystemExit where pip-audit itself fails."""
    found = Found()
    for name in files:
        command = (sys.executable, "-m", "pip_audit", "--require-hashes", "--disable-pip", "--format", "json")
        quiet = ("--progress-spinner", "off", "-r", name)
        done = subprocess.run((*command, *quiet, *options), cwd=ROOT, capture_output=True, text=True, check=False)
        try:
            found.read(json.loads(done.stdout))
        except ValueError:
            said = done.stderr.strip().splitlines()[-1:] or ["it says nothing"]
            sys.stderr.write(f"NOTHING WAS AUDITED in {name}: {said[0]}\n")
            raise SystemExit(2) from None
    return found


def main() -> int:
    """As the module says."""
    code, said = audit(FILES, sys.argv[1:]).verdict
    sys.stderr.write(f"{said}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
