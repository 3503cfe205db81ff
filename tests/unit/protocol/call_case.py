"""One request, the same request in kio, an answer to it in kio, and what is read in that."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp, TopicPartition

if TYPE_CHECKING:
    from sidecar.protocol.caller import Request

STAMP = Stamp(ProducerId(4_611_686_018_427_387_904), ProducerEpoch(31_999))
PARTITION = TopicPartition("orders", 3)
SECOND = dt.timedelta(seconds=1)
NO_THROTTLE = dt.timedelta(0)


@dataclass(frozen=True)
class Case:
    """A request, the same one in kio, an answer in kio and what the request reads in it."""

    request: Request[Any]
    kio_request: Any
    kio_answer: Any
    answer: Any
