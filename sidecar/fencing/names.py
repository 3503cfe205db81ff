"""Transactional ids of writer slots. No two slots share one, for any topic names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from sidecar.changelog import MASTER_SLOT

if TYPE_CHECKING:
    from sidecar.changelog import SlotName

PREFIX: Final = "sidecar."
"""What clients may never ask for: a client that initialises such an id moves the fence itself."""

_CLUSTER: Final = re.compile(r"[A-Za-z0-9_-]+")


def transactional_id(cluster: str, topic: str, slot: SlotName = MASTER_SLOT) -> str:
    """`sidecar.<cluster>.<topic>`, and `/<slot>` after it for other slots than the master slot.

    Topic names may hold dots but no slash: with a dot the slot of partition 3 of `orders` would be the master slot of
    a topic `orders.p3`, and the two would fence each other for ever. Raises ValueError for a cluster whose name has a
    dot.
    """
    if not _CLUSTER.fullmatch(cluster):
        raise ValueError(f"the name of a cluster of nodes is made of letters, digits, - and _, not {cluster!r}")
    name = f"{PREFIX}{cluster}.{topic}"
    return name if slot == MASTER_SLOT else f"{name}/{slot}"
