"""`sidecar doctor`: checks a node's environment for known problems, each with what to do about it.

Kafka and Redis are checked with the settings of the node that answers, not with those of this shell: the node may have
been started with flags or another file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import rich_click as click
from pydantic import ValidationError

from sidecar.cli.checks.finding import Finding, Level, fail, ok, warn
from sidecar.cli.checks.kafka import check_kafka
from sidecar.cli.checks.listeners import check_advertised
from sidecar.cli.checks.node import check_files, look_at_node
from sidecar.cli.checks.redis import check_redis
from sidecar.cli.folding import fold
from sidecar.cli.options import Shared, asks_a_node, examples
from sidecar.cli.output import Exit, counted, printable, terminal_width, write
from sidecar.cli.setting_flags import resolve_here
from sidecar.settings import ENV_PREFIX, Problem, Settings, SettingsError
from sidecar.settings.loaded import MASK, LoadedSettings, full_name
from sidecar.settings.schema import Schema

_OF_KAFKA: Final = ("bootstrap_servers", "cluster")
_REMEDY: Final = "run it with the node's own settings: sidecar doctor --config FILE, and its environment"


@dataclass(frozen=True, slots=True)
class Looked:
    """The settings to check with. `unknown`: "kafka" or "redis" if it is not checked, because not all of the node's
    settings for it are known here.
    """

    settings: Settings
    findings: Sequence[Finding]
    unknown: frozenset[str] = frozenset()


def looked_at(here: LoadedSettings, origin: str, of_node: Sequence[Mapping[str, Any]]) -> Looked:
    """Combines both sources of settings. `here`: the settings of this shell, with defaults from `origin`; `of_node`: a
    node's answer to /v1/settings, empty without a node. The node masks secrets, so these are taken from here.
    """
    valid = "the settings are valid"
    node, mine = _towards(of_node), _towards([each._asdict() for each in here.shown])
    differing = {name: value for name, value in node.items() if value != mine.get(name)}
    if not differing:
        return Looked(here.settings, [ok("config", "; ".join(filter(None, (valid, origin))))])
    masked = [name for name, value in differing.items() if MASK in value]
    if masked:
        names = ", ".join(map(full_name, masked))
        text = f"the node has a secret in {names}, and the settings here have not the same"
        unknown = frozenset("redis" if name.startswith("redis") else "kafka" for name in masked)
        found = [warn("config", f"{text}: {', '.join(sorted(unknown))} is not looked at", _REMEDY)]
    else:
        unknown, found = frozenset[str](), list[Finding]()
    said_there = {name: value for name, value in node.items() if value and MASK not in value}
    try:
        there = Schema.model_validate(said_there)
    except ValidationError as error:
        names = ", ".join(full_name(str(each["loc"][0])) for each in error.errors())
        text = f"what the node says of {names} cannot be used here: Kafka and Redis are not looked at"
        return Looked(here.settings, [*found, warn("config", text, _REMEDY)], frozenset({"kafka", "redis"}))
    taken = {name: getattr(there, name) for name in node if MASK not in node[name]}
    settings = replace(here.settings, **taken)
    said = [name for name in differing if name in here.origins and name not in masked and not origin]
    if said:
        each = (f"{full_name(name)} is {node[name] or 'not set'} at the node, not {mine[name]}" for name in said)
        remedy = "Kafka and Redis are looked at as the node has them; start it again where the settings here are newer"
        found.append(warn("config", "; ".join(each), remedy))
    return Looked(settings, found or [ok("config", f"{valid}; Kafka and Redis are those of the node")], unknown)


def _towards(shown: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The settings for connections to Kafka and Redis, by field name, as the node shows them."""
    found = {str(each["setting"]).removeprefix(ENV_PREFIX).lower(): str(each["value"]) for each in shown}
    return {
        name: value
        for name, value in found.items()
        if name in Schema.model_fields and (name in _OF_KAFKA or name.startswith(("kafka_", "redis_")))
    }


_TIMEOUT: Final = 10.0
_COLORS: Final = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "red"}


@examples(
    "sidecar doctor",
    "sidecar doctor -o json --config /etc/sidecar/sidecar.toml",
)
@click.command()
@asks_a_node
def doctor(shared: Shared) -> None:
    """Check the settings, Kafka, Redis, the node if one runs, and this machine; say a remedy for each fault.

    Where a node answers, its own Kafka and Redis are checked; else those of the settings that `serve` would use here.
    Says of each failure what it blocks. Changes nothing. Exit code 10 where something fails.
    """
    found = _examine(shared)
    healthy = all(each.level is not Level.FAIL for each in found)
    data = {"healthy": healthy, "checks": [asdict(each) for each in found]}
    write(data, shared.output, lambda: _as_text(found))
    if not healthy:
        raise SystemExit(Exit.UNHEALTHY)


def _examine(shared: Shared) -> list[Finding]:
    try:
        resolved, origin = resolve_here(shared.config)
    except SettingsError as error:
        blocks = "the start of a node here, and all other checks"
        problems = [fail("config", str(problem), "sidecar check-config", blocks) for problem in error.problems]
        return problems + _odd(error.warnings)
    odd = _odd(resolved.warnings)
    view = look_at_node(shared.api(_TIMEOUT))
    looked = looked_at(resolved, origin, view.settings)
    found = odd + [each for each in looked.findings if not odd or each.level is not Level.OK]

    async def nothing() -> list[Finding]:
        return []

    async def look_around() -> list[Finding]:
        parts = await asyncio.gather(
            check_advertised(resolved.settings, view.status),
            nothing()
            if "kafka" in looked.unknown
            else check_kafka(looked.settings, view.governed, view.shadows, view.nodes, view.with_ids),
            nothing() if "redis" in looked.unknown else check_redis(looked.settings),
        )
        return [each for part in parts for each in part]

    return [*found, *view.findings, *asyncio.run(look_around()), *check_files(view)]


def _odd(warnings: Sequence[Problem]) -> list[Finding]:
    return [warn("config", str(warning), "sidecar config show --origin") for warning in warnings]


def _as_text(found: list[Finding]) -> str:
    width = max(len(each.name) for each in found)
    lines: list[str] = []
    for each in found:
        level = click.style(each.level.ljust(4), fg=_COLORS[each.level], bold=True)
        lines += _below(f"{level}  {each.name.ljust(width)}  ", width + 8, each.detail)
        if each.blocks:
            lines += _below(" " * (width + 8) + "blocks ", width + 15, each.blocks)
        if each.remedy:  # often a command: on one line it can be copied
            lines.append(f"{' ' * (width + 8)}-> {printable(each.remedy)}")
    lines += ["", _summary(found)]
    return "\n".join(lines)


def _below(head: str, indent: int, text: str) -> list[str]:
    """A text after a head; wrapped below itself if the terminal is too narrow."""
    width = terminal_width()
    first, *more = [text] if width is None else fold(printable(text), max(20, width - indent), within_words=False)
    return [head + printable(first), *(" " * indent + line for line in more)]


def _summary(found: list[Finding]) -> str:
    """What has to be repaired first, in one line."""
    names = {level: [each.name for each in found if each.level is level] for level in Level}
    fails, warns = names[Level.FAIL], names[Level.WARN]
    said = [_said(fails, "blocks", "block") if fails else "nothing blocks"]
    return "; ".join([*said, _said(warns, "does not", "do not")] if warns else said)


def _said(names: list[str], of_one: str, of_more: str) -> str:
    return (
        f"{counted(len(names), 'finding')} {of_one if len(names) == 1 else of_more}: {', '.join(dict.fromkeys(names))}"
    )
