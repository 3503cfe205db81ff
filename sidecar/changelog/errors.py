"""The errors of the internal topics, one class for each reaction that the caller needs."""

from typing import Final

from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.errors import KafkaError


class ChangelogError(Exception):
    """The base of the errors of the internal topics."""


class ChangelogLostError(ChangelogError):
    """An internal topic was deleted, or another topic has its name. Nothing is created in its place.

    Only an operator may declare its records void; until then no takeover and no keep-alive happens.
    """


class MisconfiguredError(ChangelogError):
    """The configuration of the internal topics is not safe; the message names every wrong setting and the value that it
    must have.
    """


class AppendRefusedError(KafkaError):
    """The batch was refused and is not in the log; sending it again would be refused again."""


class AppendUncertainError(ChangelogError):
    """No answer showed whether the batch is in the log: it may be there, or may still be appended.

    A stamped batch can be sent again unchanged; otherwise its writer must be fenced before any code relies on the
    absence of the batch.
    """


FAILURES: Final = (UpstreamError, KafkaError, ChangelogError, TimeoutError)
"""The errors of reading or writing Kafka that the caller did not cause; another attempt may succeed."""
