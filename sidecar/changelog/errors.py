"""What can go wrong with the internal topics, by what the caller must do about it."""

from typing import Final

from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.errors import KafkaError


class ChangelogError(Exception):
    """Something about the internal topics."""


class ChangelogLostError(ChangelogError):
    """An internal topic that was there is gone, or another one lies under its name. Nothing is created in its place.

    What it held is void only if an operator says so; until then no takeover and no keep-alive happens.
    """


class MisconfiguredError(ChangelogError):
    """The internal topics are not configured as safety needs; the message names every setting and the value to give
    it.
    """


class AppendRefusedError(KafkaError):
    """The batch was refused and is not in the log; sending it again would be refused again."""


class AppendUncertainError(ChangelogError):
    """Every try ended without a word on whether the batch is in the log. It may still get there, or be there already.

    A stamped batch can be sent again as it is; else its writer must be fenced before anybody relies on its absence.
    """


FAILURES: Final = (UpstreamError, KafkaError, ChangelogError, TimeoutError)
"""How reading or writing Kafka fails through no fault of the caller, where another try may do."""
