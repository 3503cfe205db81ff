"""Translates the decisions of the coordinator of strings and reader claims into those of `sidecar.exclusive.owning`.
Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sidecar.exclusive.owning import Look, Prospect
from sidecar.protocol.errors import ErrorCode
from sidecar.resources.requests import Decision
from sidecar.v1 import control_pb2 as control

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sidecar.gateway.own.asked import Target
    from sidecar.protocol.errors import KafkaError
    from sidecar.resources.requests import Verdict

_PROSPECTS: Final = {
    Decision.GRANT: Prospect.READY,
    Decision.WAIT: Prospect.WAIT,
    Decision.BUSY: Prospect.BUSY,
}


def of_verdict(targets: Sequence[Target], verdict: Verdict) -> dict[Target, Look]:
    """A verdict by target."""
    if verdict.decision is not Decision.REFUSE:
        return dict.fromkeys(targets, Look(_PROSPECTS[verdict.decision]))
    return {
        target: Look(Prospect.REFUSED, told.error, told.message) if told.error else Look(Prospect.READY)
        for target, told in zip(targets, verdict.ownerships, strict=True)
    }


def not_now(error: KafkaError) -> Look:
    """Another node coordinates (6), or nobody can now (5)."""
    elsewhere = error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    return Look(Prospect.REFUSED, control.NOT_SERVING if elsewhere else control.UNAVAILABLE, error.message)
