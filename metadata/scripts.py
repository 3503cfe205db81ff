"""The Lua scripts of `metadata/lua`, one per decision, ready to be sent. Runs nothing."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_DIRECTORY: Final = Path(__file__).with_name("lua")
_COMMON: Final = (_DIRECTORY / "common.lua").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Script:
    """A script's name and text (with common.lua in front) and the SHA-1 under which a server caches it."""

    name: str
    text: bytes = field(repr=False)
    sha: bytes = field(repr=False)


def _load(name: str) -> Script:
    text = (_COMMON + (_DIRECTORY / f"{name}.lua").read_text(encoding="utf-8")).encode()
    # EVALSHA names scripts by SHA-1; nothing is secured by it.
    return Script(name, text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())


HEARTBEAT: Final = _load("heartbeat")
LEAVE: Final = _load("leave")
SERVE: Final = _load("serve")
HAND_OVER: Final = _load("hand_over")
CLAIM: Final = _load("claim")
ABANDON: Final = _load("abandon")
PUBLISH: Final = _load("publish")
RELEASE: Final = _load("release")
OWNERSHIP: Final = _load("ownership")
KEEP_QUEUE: Final = _load("keep_queue")
QUEUE: Final = _load("queue")
FORGET: Final = _load("forget")
KEEP_SNAPSHOT: Final = _load("keep_snapshot")
SNAPSHOTS: Final = _load("snapshots")
SET_POLICY: Final = _load("set_policy")
REFILL_POLICIES: Final = _load("refill_policies")
POLICIES: Final = _load("policies")
