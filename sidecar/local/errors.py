"""What can go wrong with the embedded parts, in words meant for the person at the terminal."""


class LocalError(Exception):
    """An embedded part cannot be used; the message says what to do about it."""


class VariablesError(LocalError):
    """Variables that choose what to run have values that cannot be used: for each its name, value and what is right."""

    def __init__(self, *problems: tuple[str, str, str]) -> None:
        super().__init__("\n".join(f"{name}={value}: {advice}" for name, value, advice in problems))
        self.problems = problems


class ResolveError(LocalError):
    """The jars of Kafka could not be brought here or are not what they should be."""


class StartError(LocalError):
    """A child process ended or stayed silent instead of becoming ready; the message ends with the tail of its log."""


class PortInUseError(StartError):
    """Another program listens on the port asked for."""


class AlreadyRunningError(LocalError):
    """Another process runs the parts of this state directory."""
