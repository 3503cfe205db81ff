"""The ways in which a call of a node can fail."""

from __future__ import annotations


class PortError(Exception):
    """A call that failed for a reason that the caller sees. The message is meant for people."""


class NotFoundError(PortError):
    """No such topic, it has no policy to delete, or nobody wrote there under a name."""


class ConflictError(PortError):
    """Not in this state: nothing to fence or release, no deduplication, a name in use, or the topic has changed
    meanwhile.
    """


class GenerationError(PortError):
    """The generation is none of those that a change was to be made under. Nothing was done."""

    @classmethod
    def of(cls, name: str, current: int) -> GenerationError:
        """`current`: what it is."""
        return cls(f"the generation of {name} is {current} now; nothing was done")


class UnavailableError(PortError):
    """Kafka or Redis is away, or a takeover is under way: worth another try."""

    @classmethod
    def unsettled(cls, error: Exception, look: str) -> UnavailableError:
        """A change that failed on its way to Kafka, and may still have arrived there. `look`: a command that shows
        it.
        """
        return cls(f"{error}. It may have been done anyway: check with `{look}`")


class NothingDoneError(UnavailableError):
    """The topic moves between nodes: nothing was begun, so it may be asked for again at once, here or there."""


class ElsewhereError(NothingDoneError):
    """Another node serves the topic; `admin` is where its HTTP side listens (host:port), None where this node cannot
    reach it.
    """

    def __init__(self, message: str, admin: str | None) -> None:
        super().__init__(message)
        self.admin = admin


class InvalidError(PortError):
    """A legal value that this topic or this node cannot take."""
