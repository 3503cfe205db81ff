"""What brokers offered their clients by ApiVersions when it was recorded, and whether all that one offers is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.protocol.offered import NEWEST

if TYPE_CHECKING:
    from collections.abc import Mapping

# fmt: off
OFFERED = {
    "3.9.1": {
        0: 11, 1: 17, 2: 9, 3: 12, 8: 9, 9: 9, 10: 6, 11: 9, 12: 4, 13: 5, 14: 5, 15: 5, 16: 5, 17: 1, 18: 4, 19: 7,
        20: 6, 21: 2, 22: 5, 23: 4, 24: 5, 25: 4, 26: 4, 27: 1, 28: 4, 29: 3, 30: 3, 31: 3, 32: 4, 33: 2, 34: 2, 35: 4,
        36: 2, 37: 3, 38: 3, 39: 2, 40: 2, 41: 3, 42: 2, 43: 2, 44: 1, 45: 0, 46: 0, 47: 0, 48: 1, 49: 1, 50: 0, 51: 0,
        55: 2, 57: 1, 60: 1, 61: 0, 64: 0, 65: 0, 66: 1, 68: 0, 69: 0, 74: 0, 75: 0, 80: 0, 81: 0,
    },
    "4.1.1": {
        0: 13, 1: 18, 2: 10, 3: 13, 8: 9, 9: 9, 10: 6, 11: 9, 12: 4, 13: 5, 14: 5, 15: 6, 16: 5, 17: 1, 18: 4, 19: 7,
        20: 6, 21: 2, 22: 5, 23: 4, 24: 5, 25: 4, 26: 5, 27: 1, 28: 5, 29: 3, 30: 3, 31: 3, 32: 4, 33: 2, 34: 2, 35: 4,
        36: 2, 37: 3, 38: 3, 39: 2, 40: 2, 41: 3, 42: 2, 43: 2, 44: 1, 45: 1, 46: 0, 47: 0, 48: 1, 49: 1, 50: 0, 51: 0,
        55: 2, 57: 2, 60: 2, 61: 0, 64: 0, 65: 0, 66: 2, 68: 1, 69: 1, 74: 1, 75: 0, 76: 1, 77: 1, 78: 1, 79: 1, 80: 0,
        81: 0, 83: 0, 84: 0, 85: 0, 86: 0, 87: 0, 90: 0, 91: 0, 92: 0,
    },
    "4.3.1": {
        0: 13, 1: 18, 2: 11, 3: 13, 8: 10, 9: 10, 10: 6, 11: 9, 12: 4, 13: 5, 14: 5, 15: 6, 16: 5, 17: 1, 18: 4, 19: 7,
        20: 6, 21: 2, 22: 5, 23: 4, 24: 5, 25: 4, 26: 5, 27: 2, 28: 5, 29: 3, 30: 3, 31: 3, 32: 4, 33: 2, 34: 2, 35: 5,
        36: 2, 37: 3, 38: 3, 39: 2, 40: 2, 41: 3, 42: 2, 43: 2, 44: 1, 45: 1, 46: 0, 47: 0, 48: 1, 49: 1, 50: 0, 51: 0,
        55: 2, 57: 2, 60: 2, 61: 0, 64: 0, 65: 0, 66: 2, 68: 1, 69: 1, 74: 1, 75: 0, 76: 1, 77: 1, 78: 2, 79: 2, 80: 1,
        81: 0, 83: 0, 84: 0, 85: 1, 86: 0, 87: 1, 88: 0, 89: 0, 90: 1, 91: 0, 92: 0,
    },
}
"""The highest version of each API in the answers to ApiVersions of brokers as they come, recorded."""
# fmt: on


def unnamed(offered: Mapping[int, int]) -> list[tuple[int, int]]:
    """What is in no table of all that a broker offers: key and highest version of each API."""
    return [(key, version) for key, version in offered.items() if version > NEWEST.get(key, -1)]
