"""The command `sidecar`: a thin shell over the REST interface of a node, the settings and the embedded parts.

Data goes to stdout, talk to stderr. Each command is a module that is imported when it is asked for, so that a health
check costs a few milliseconds.
"""


def main() -> None:
    """The entry point of the installed program; never returns."""
    from sidecar.cli.root import cli  # noqa: PLC0415 - importing this package must cost nothing

    cli(prog_name="sidecar")
