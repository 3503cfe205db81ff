"""Answers of several APIs that take a right on the cluster or on a transactional id, where it is missing. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from sidecar.gateway.access.asked import CLUSTER, NO_ID, Asking, error_fields, refused_topic
from sidecar.protocol.schema import Values

NOT_ON_CLUSTER: Final = error_fields(CLUSTER)
NO_PRODUCER: Final[Values] = {"producer_id": NO_ID, "producer_epoch": NO_ID}
"""In the answer to a refused InitProducerId or EndTxn."""


def refused_elements(asked: str, answered: str) -> Callable[[Asking], Values]:
    """An answer in which each element of the request has the error."""
    return lambda asking: {answered: [NOT_ON_CLUSTER] * len(asking.fields[asked] or ())}  # one object for thousands


def refused_topics(asked: str, answered: str, error: Values, *names: str) -> Callable[[Asking], Values]:
    """An answer in which each partition of the request has the error. `names`: see `refused_topic`."""
    return lambda asking: {answered: [refused_topic(each, error, *names) for each in asking.fields[asked] or ()]}


def not_added(topics: Iterable[Values], code_of: Callable[[str, int], int]) -> Values:
    """The answer to AddPartitionsToTxn if nothing was added; `code_of` returns the code for a topic and partition."""
    return {
        "results_by_topic": [
            {
                "name": topic["name"],
                "results_by_partition": [
                    {"partition_index": index, "partition_error_code": code_of(topic["name"], index)}
                    for index in topic["partitions"]
                ],
            }
            for topic in topics
        ]
    }
