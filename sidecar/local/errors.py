"""What can go wrong with the embedded parts, in words meant for the person at the terminal."""


class LocalError(Exception):
    """An embedded part cannot be used; the message says what to do about it."""


class ResolveError(LocalError):
    """The jars of Kafka could not be brought here or are not what they should be."""


class StartError(LocalError):
    """A child process ended or stayed silent instead of becoming ready; the message ends with the tail of its log."""


class PortInUseError(StartError):
    """Another program listens on the port asked for."""


class AlreadyRunningError(LocalError):
    """Another process runs the parts of this state directory."""
