"""The errors of a fence, by what the caller has to do. A slot lost for good is a `FencedError`."""

from __future__ import annotations

from sidecar.protocol.errors import KafkaError


class FencingRefusedError(KafkaError):
    """Kafka refuses for a reason that trying again does not change: an authorization, a setting."""


class EpochsUsedUpError(Exception):
    """The slot's epoch is near its end: it must be opened anew and its producer id changed before anybody writes."""
