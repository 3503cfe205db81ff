"""`python -m tests.ownership`: write the answers of all transcripts anew."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.ownership.transcript import Transcript

for path in sorted(Path(__file__).parent.glob("*.txt")):
    before = path.read_text(encoding="utf-8")
    after = Transcript().play(before)
    path.write_text(after, encoding="utf-8")
    sys.stdout.write(f"{path.name}: {'changed' if after != before else 'as before'}\n")
