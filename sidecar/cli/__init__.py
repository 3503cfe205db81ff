"""The command `sidecar`: a thin layer over the REST interface of a node, the settings and the embedded parts.

Data goes to stdout, messages to stderr. Each command is a module that is imported only when it is used, so that a
health check takes a few milliseconds.
"""

import sys
from itertools import pairwise


def main() -> None:
    """The entry point of the installed program; never returns."""
    if _serves(sys.argv[1:]):
        _hold_hangups()
    from sidecar.cli.root import cli  # noqa: PLC0415 - importing this package must be cheap

    cli(prog_name="sidecar")


def _serves(arguments: list[str]) -> bool:
    """Whether the command is `serve`: the first word that is neither an option nor the value of one."""
    for before, word in pairwise(["sidecar", *arguments]):
        if not word.startswith("-") and ("=" in before or not before.startswith("-")):
            return word == "serve"
    return False


def _hold_hangups() -> None:
    """Block SIGHUP until the node can handle it: during half a second of imports it would end the process.

    It is not blocked while the interpreter starts, for some hundredths of a second, because no code here runs yet. The
    systemd units restart the process in that case.
    """
    import signal  # noqa: PLC0415 - other commands do not need it

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
