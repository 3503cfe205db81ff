"""The command `sidecar`: a thin shell over the REST interface of a node, the settings and the embedded parts.

Data goes to stdout, talk to stderr. Each command is a module that is imported when it is asked for, so that a health
check costs a few milliseconds.
"""

import sys
from itertools import pairwise


def main() -> None:
    """The entry point of the installed program; never returns."""
    if _serves(sys.argv[1:]):
        _hold_hangups()
    from sidecar.cli.root import cli  # noqa: PLC0415 - importing this package must cost nothing

    cli(prog_name="sidecar")


def _serves(arguments: list[str]) -> bool:
    """Whether the command is `serve`: the first word that is neither an option nor the value of one."""
    for before, word in pairwise(["sidecar", *arguments]):
        if not word.startswith("-") and ("=" in before or not before.startswith("-")):
            return word == "serve"
    return False


def _hold_hangups() -> None:
    """Keep SIGHUP for the node, before half a second of imports: until it listens, the signal would end the process.

    What is left is the start of the interpreter, some hundredths of a second in which no code of ours runs: the units
    for systemd have it started again.
    """
    import signal  # noqa: PLC0415 - other commands do without

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
