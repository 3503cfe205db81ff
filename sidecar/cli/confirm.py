"""Questions in front of what cannot be taken back.

One rule for all commands: asked on a terminal alone, and not where `--yes` is said. A script is never asked, so that it
never hangs; it says on which condition it destroys something (`--if-generation`), which the node judges.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import rich_click as click

from sidecar.cli.output import printable

if TYPE_CHECKING:
    from collections.abc import Callable

yes_option = click.option("--yes", is_flag=True, help="Do not ask, on a terminal.")


def has_to_ask(yes: bool) -> bool:
    """Whether somebody is there to answer a question, and wants one."""
    return not yes and is_asked_by_a_person()


def is_asked_by_a_person() -> bool:
    """Whether somebody can answer a question."""
    return sys.stdin.isatty()


def confirm(yes: bool, question: Callable[[], str]) -> None:
    """Ask on a terminal; ends the command with exit code 1 unless the answer is y. No question is asked where it is
    empty. `question` may ask the node what would happen, and raise CommandError.
    """
    if has_to_ask(yes) and (text := question()):
        click.confirm("\n".join(map(printable, text.split("\n"))), abort=True, err=True)


def ownership(topic: dict[str, Any], partition: int | None = None) -> str:
    """Who owns a topic, or a partition of it, as `GET /v1/topics/{topic}` says, for a question; "nobody"."""
    return "; ".join(_owner_text(*each) for each in _owners(topic, partition)) or "nobody"


def generation_of(topic: dict[str, Any], partition: int | None = None) -> int:
    """Under which generation a topic, or a partition of it, is owned; there has to be one owner."""
    ((_, owner),) = _owners(topic, partition)
    return int(owner["generation"])


def _owners(topic: dict[str, Any], partition: int | None) -> list[tuple[str, dict[str, Any]]]:
    """Where, and who with the generation."""
    by_partition: dict[str, dict[str, Any]] = topic.get("owners") or {}
    if partition is not None:
        return [("", owner) for number, owner in by_partition.items() if number == str(partition)]
    found = [(f"partition {number}: ", owner) for number, owner in by_partition.items()]
    return [("", topic["owner"] | {"generation": topic["generation"]})] if topic["owner"] else found


def _owner_text(where: str, owner: dict[str, Any]) -> str:
    name = owner["name"] or "(no name)"
    return f"{where}{name} ({owner['session']} at {owner['client']}), generation {owner['generation']}"
