"""The errors of the embedded parts, in words for the user at the terminal."""


class LocalError(Exception):
    """An embedded part cannot be used; the message says what to do about it."""


class VariablesError(LocalError):
    """Variables that choose what to run have invalid values: for each its name, its value and what would be right."""

    def __init__(self, *problems: tuple[str, str, str]) -> None:
        super().__init__("\n".join(f"{name}={value}: {advice}" for name, value, advice in problems))
        self.problems = problems


class ResolveError(LocalError):
    """The jars of Kafka could not be downloaded, or differ from their lock."""


class StartError(LocalError):
    """A child process ended or did not become ready in time; the message ends with the tail of its log."""


class PortInUseError(StartError):
    """Another program listens on the requested port."""


class AlreadyRunningError(LocalError):
    """Another process runs the parts of this state directory."""
