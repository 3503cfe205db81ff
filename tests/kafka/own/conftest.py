"""One node for the tests that need nothing special of it."""

from __future__ import annotations
