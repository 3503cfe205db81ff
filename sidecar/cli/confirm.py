"""Questions before acts that cannot be undone.

One rule for all commands: a question is asked only on a terminal, and not with `--yes`. A script is never asked, so it
never blocks. It can state a condition for the act (`--if-generation`), which the node checks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import rich_click as click

from sidecar.cli.output import printable_lines

yes_option = click.option("--yes", is_flag=True, help="Do not ask, on a terminal.")


def has_to_ask(yes: bool) -> bool:
    """Whether a question has to be asked: a person can answer it, and `--yes` was not given."""
    return not yes and is_asked_by_a_person()


def is_asked_by_a_person() -> bool:
    """Whether a person can answer a question."""
    return sys.stdin.isatty()


def confirm(yes: bool, question: Callable[[], str]) -> None:
    """Ask on a terminal; ends the command with exit code 1 unless the answer is y. An empty question is not asked.
    `question` may ask the node what would happen, and raise CommandError.
    """
    if has_to_ask(yes) and (text := question()):
        click.confirm(printable_lines(text), abort=True, err=True)


def ownership(topic: dict[str, Any]) -> str:
    """The owner of a topic, or of its partitions, from `GET /v1/topics/{topic}`, as text for a question; "nobody"."""
    if (owner := owner_of(topic, None)) is not None:
        return described(owner)
    by_partition: dict[str, dict[str, Any]] = topic.get("owners") or {}
    return "; ".join(f"partition {number}: {described(each)}" for number, each in by_partition.items()) or "nobody"


def owner_of(topic: dict[str, Any], partition: int | None) -> dict[str, Any] | None:
    """The owner of the topic, or of `partition` if it is given, with its generation. None without an owner, and if
    the topic is owned by partition and `partition` is None, or as a whole and `partition` is given.
    """
    if partition is not None:
        return (topic.get("owners") or {}).get(str(partition))
    return topic["owner"] and topic["owner"] | {"generation": topic["generation"]}


def described(owner: dict[str, Any]) -> str:
    """An owner as text for a question."""
    name = owner["name"] or "(no name)"
    return f"{name} ({owner['session']} at {owner['client']}), generation {owner['generation']}"
