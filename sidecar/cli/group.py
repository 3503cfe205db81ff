"""Groups of commands: each command is imported when it is used, and for a misspelt one the nearest name is shown.

Help and completion need names and one line each, which are listed where the group is made: `sidecar --help` imports no
command.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import rich_click as click
from click.exceptions import Abort, ClickException

from sidecar.cli.output import Exit, format_of, report

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from click import Command, Context
    from click.shell_completion import CompletionItem


class Place(NamedTuple):
    """The place of a command, as `module:name`, and its description in one line."""

    code: str
    summary: str


class SuggestingGroup(click.RichGroup):
    """A group that suggests the nearest command for an unknown name."""

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        """Like click's, which suggests names only from 8.4 on, and never for a lazy group."""
        name, known = args[0], self.list_commands(ctx)
        if not ctx.resilient_parsing and not name.startswith("-") and name not in known:
            near = [f"'{each}'" for each in get_close_matches(name, known)]
            ctx.fail(f"No such command {name!r}." + (f" Did you mean {' or '.join(near)}?" if near else ""))
        return super().resolve_command(ctx, args)


class LazyGroup(SuggestingGroup):
    """A group that knows the place of its commands' code, and prints errors as plain lines.

    A box around an error would break its lines, and grep could not find their text.
    """

    def __init__(self, *args: Any, places: Mapping[str, Place], **more: Any) -> None:
        """`places`: where each command is, in the order in which a new user needs them."""
        super().__init__(*args, **more)
        self._places = places
        self._only_names = False

    def main(self, args: Sequence[str] | None = None, *others: Any, standalone_mode: bool = True, **more: Any) -> Any:
        """Like click's: ends the process, unless `standalone_mode` is off."""
        if not standalone_mode:
            return super().main(args, *others, standalone_mode=False, **more)
        try:
            code = super().main(args, *others, standalone_mode=False, **more)
        except ClickException as error:
            report(error, format_of(sys.argv[1:] if args is None else args))
            sys.exit(error.exit_code)
        except Abort:
            sys.exit(Exit.FAILURE)
        sys.exit(code if isinstance(code, int) else Exit.OK)

    def list_commands(self, ctx: Context) -> list[str]:
        """The names in the order of their places."""
        return list(self._places)

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        """Import one command; while names are listed, return a placeholder."""
        place = self._places.get(cmd_name)
        if place is None:
            return None
        if self._only_names:
            return click.RichCommand(name=cmd_name, short_help=place.summary)
        module, _, name = place.code.partition(":")
        found: Any = getattr(import_module(module), name)
        return found

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Format the help without importing a command."""
        with self._names():
            super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Context, incomplete: str) -> list[CompletionItem]:
        """Complete without importing a command."""
        with self._names():
            return super().shell_complete(ctx, incomplete)

    @contextmanager
    def _names(self) -> Iterator[None]:
        self._only_names = True
        try:
            yield
        finally:
            self._only_names = False
