"""Which Kafka and Redis `sidecar doctor` looks at: those of the node that answers, as its settings say, and not those
of the settings here, which a node with flags or another file does not have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic import ValidationError

from sidecar.cli.checks.finding import Finding, ok, warn
from sidecar.settings import ENV_PREFIX, Settings
from sidecar.settings.loaded import MASK, LoadedSettings, full_name
from sidecar.settings.schema import Schema

_OF_KAFKA: Final = ("bootstrap_servers", "cluster")
_REMEDY: Final = "run it with the node's own settings: sidecar doctor --config FILE, and its environment"


@dataclass(frozen=True, slots=True)
class Looked:
    """Settings to look around with. `unknown`: what is not looked at, "kafka" or "redis", as the node's settings for it
    are not all known here.
    """

    settings: Settings
    findings: Sequence[Finding]
    unknown: frozenset[str] = frozenset()


def looked_at(here: LoadedSettings, origin: str, of_node: Sequence[Mapping[str, Any]]) -> Looked:
    """`here`: the settings of this shell, which come from `origin` where nobody said them; `of_node`: what a node
    answers under /v1/settings, empty without a node. Secrets are not shown: they come from here.
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
    """The settings towards Kafka and Redis, by field name, as people see them."""
    found = {str(each["setting"]).removeprefix(ENV_PREFIX).lower(): str(each["value"]) for each in shown}
    return {
        name: value
        for name, value in found.items()
        if name in Schema.model_fields and (name in _OF_KAFKA or name.startswith(("kafka_", "redis_")))
    }
