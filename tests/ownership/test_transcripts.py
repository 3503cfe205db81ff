"""The stories of docs/reference/guarantees.md, event by event: see `transcript` and the texts beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ownership.claim_transcript import ClaimTranscript
from tests.ownership.transcript import Transcript, TranscriptError

STORIES = sorted(Path(__file__).parent.rglob("*.txt"))


def played(story: Path) -> str:
    """A story as the machine tells it: of topics, or in `claims` of free strings and readers."""
    transcript = ClaimTranscript() if story.parent.name == "claims" else Transcript()
    return transcript.play(story.read_text(encoding="utf-8"))


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_a_story_goes_as_it_is_told(story: Path) -> None:
    """After a change of the machine that is meant: `python -m tests.ownership`, and read the difference."""
    assert played(story) == story.read_text(encoding="utf-8")


def test_a_word_that_is_no_event_is_named() -> None:
    with pytest.raises(TranscriptError, match="batch pid:1"):
        Transcript().play("> batch pid:1")
