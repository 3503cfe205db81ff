"""One poll of a leader on the node's own connections, for all readers that ask the same: a long one for readers that
wait (`tails`), a short one that finds where logs end (`ends`).

A first batch may be larger than the limits (KIP-74). What a client reads by itself goes over its own connections
(`sidecar.gateway.leader_poll`). Decides nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from sidecar.protocol.caller import Channel, UpstreamError
from sidecar.protocol.calls.tails import FetchTails, FetchTailsById
from sidecar.protocol.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sidecar.fanout.question import Question
    from sidecar.protocol.caller import Upstream
    from sidecar.protocol.calls.tails import Fetched


_MOST_PARTITIONS: Final = 500


class Limits(NamedTuple):
    """How long a poll waits for a first byte, and how many bytes it takes: in all, and of each partition."""

    wait_ms: int
    most_bytes: int
    partition_bytes: int


async def poll(
    upstream: Upstream, leader: int, channel: Channel, questions: Sequence[Question], limits: Limits
) -> dict[tuple[bytes, int], Fetched]:
    """A leader's answers to questions of one isolation level, each about a different partition, all by id or all by
    name; {} if the leader does not answer.
    """
    positions = [question.position for question in questions]
    call = FetchTailsById if positions[0].topic_id else FetchTails
    try:
        return await upstream.call(leader, call(positions, questions[0].isolation, *limits), channel=channel)
    except (UpstreamError, KafkaError):
        return {}


def bundle_up(bundles: list[dict[tuple[bytes, int], Question]], question: Question) -> None:
    """Put a question into the first bundle without its partition: a broker takes each partition once per request."""
    key = question.position.of
    for bundle in bundles:
        if key not in bundle and len(bundle) < _MOST_PARTITIONS:
            bundle[key] = question
            return
    bundles.append({key: question})
