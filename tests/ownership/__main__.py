"""`python -m tests.ownership`: write the answers of all transcripts anew."""

from __future__ import annotations

import sys

from tests.ownership.test_transcripts import STORIES, played

for path in STORIES:
    before = path.read_text(encoding="utf-8")
    after = played(path)
    path.write_text(after, encoding="utf-8")
    sys.stdout.write(f"{path.name}: {'changed' if after != before else 'as before'}\n")
