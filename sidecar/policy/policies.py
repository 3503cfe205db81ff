"""Policies by topic and prefix: nearest wins, field by field (exact name, then the longest prefix, then the default).
Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, cast

from metadata.ownership import AccessMode
from sidecar.access.rules import MODE_NUMBERS
from sidecar.cluster.resolver import LONGEST_TOPIC
from sidecar.v1 import state_pb2 as state


class Scope(StrEnum):
    """What one owner owns."""

    TOPIC = "topic"
    PARTITION = "partition"


@dataclass(frozen=True, slots=True)
class PolicyFields:
    """The fields of a policy; None: a wider policy decides."""

    access_mode: AccessMode | None = None
    deduplication: bool | None = None
    exclusive_reader: bool | None = None
    scope: Scope | None = None
    log_append_time: bool | None = None

    def merged(self, change: PolicyFields) -> PolicyFields:
        """The policy with the fields that a change names."""
        return PolicyFields(*[_first(getattr(change, f.name), getattr(self, f.name)) for f in fields(self)])

    def body(self, *, by_client: bool = False) -> str:
        """The form for the metadata store (JSON). `by_client`: a client made the policy by asking for a mode."""
        found = {name: value for name, value in asdict(self).items() if value is not None}
        return json.dumps(found | {_BY_CLIENT: True} if by_client else found)

    @classmethod
    def of_body(cls, body: str) -> PolicyFields:
        """The opposite of `body`; names of a newer version are ignored. Raises `ValueError` for what is no policy."""
        names, wanted = {f.name for f in fields(cls)}, json.loads(body)
        if not isinstance(wanted, dict):
            raise ValueError(f"not a policy: {body[:80]}")  # noqa: TRY004 - as for a text that is no JSON
        found: dict[str, Any] = {name: value for name, value in cast("dict[str, Any]", wanted).items() if name in names}
        if "access_mode" in found:
            found["access_mode"] = AccessMode(found["access_mode"])
        if "scope" in found:
            found["scope"] = Scope(found["scope"])
        return cls(**found)

    def to_record(self, version: int, at_ms: int, *, by_client: bool = False) -> state.Policy:
        """The form for the changelog; `by_client` as in `body`."""
        found = {name: value for name, value in asdict(self).items() if value is not None}
        numbers: dict[str, Any] = {name: spelling[found[name]] for name, spelling in _NUMBERS.items() if name in found}
        return state.Policy(version=version, at_ms=at_ms, by_client=by_client, **(found | numbers))

    @classmethod
    def of_record(cls, record: state.Policy) -> PolicyFields:
        """Read a changelog record; unknown numbers of a newer version are ignored."""
        found: dict[str, Any] = {
            f.name: getattr(record, f.name) for f in fields(cls) if record.HasField(cast("Any", f.name))
        }
        names = {name: _NAMES[name].get(found[name]) for name in _NAMES if name in found}
        return cls(**(found | names))


def is_by_client(body: str) -> bool:
    """Whether a client made the policy with this body."""
    return bool(json.loads(body).get(_BY_CLIENT))


_BY_CLIENT: Final = "by_client"
_NUMBERS: Final[Mapping[str, Mapping[Any, Any]]] = {
    "access_mode": MODE_NUMBERS,
    "scope": {Scope.TOPIC: state.SCOPE_TOPIC, Scope.PARTITION: state.SCOPE_PARTITION},
}
"""The numbers in records, for the fields that are not flags."""
_NAMES: Final[Mapping[str, Mapping[Any, Any]]] = {
    field: {number: value for value, number in spelling.items()} for field, spelling in _NUMBERS.items()
}
_DEFAULT: Final = PolicyFields(AccessMode.SHARED, False, False, Scope.TOPIC, False)


_REMEMBERED: Final = 10_000
"""The number of topics for which the book caches the policy: clients may name any."""


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


class PolicyBook:
    """All policies of a cluster of nodes. Each change makes a new book."""

    __slots__ = ("_by_name", "_default", "_known", "_prefixes")

    def __init__(self, by_name: Mapping[str, PolicyFields], default: PolicyFields | None = None) -> None:
        """`default` governs every topic that no policy covers, and decides the fields that policies leave open."""
        self._by_name = dict(by_name)
        self._default = default
        self._prefixes = sorted((name[:-1] for name in by_name if name.endswith("*")), key=len, reverse=True)
        self._known = lru_cache(_REMEMBERED)(self._effective)

    def effective(self, topic: str) -> PolicyFields | None:
        """The policy in force for a topic, with every field set; None if no policy covers it. Internal topics are never
        covered. Called for each batch that is not its owner's.
        """
        return self._known(topic) if len(topic) <= LONGEST_TOPIC else self._effective(topic)

    def exact(self, name: str) -> PolicyFields | None:
        """The policy set under exactly this name or pattern."""
        return self._by_name.get(name)

    @property
    def topics(self) -> list[str]:
        """Names with their own policy."""
        return [name for name in self._by_name if not name.endswith("*")]

    @property
    def prefixes(self) -> list[str]:
        """Prefixes with a policy, without the star."""
        return list(self._prefixes)

    @property
    def governed_prefixes(self) -> list[str]:
        """Prefixes of topics that are governed; with a default also the empty prefix, for all topics."""
        return list(self._prefixes) if self._default is None else [*self._prefixes, ""]

    def scope(self, topic: str) -> Scope:
        """What one owner of a topic owns."""
        return getattr(self.effective(topic), "scope", None) or Scope.TOPIC

    def _effective(self, topic: str) -> PolicyFields | None:
        found = [policy for _, policy in self.covering(topic)]
        if self._default is not None and not topic.startswith("__"):
            found.append(self._default)
        if not found:
            return None
        merged = PolicyFields()
        for policy in [*found, _DEFAULT]:
            merged = policy.merged(merged)
        return merged

    def covering(self, name: str) -> list[tuple[str, PolicyFields]]:
        """The policies that apply to a topic or to a prefix, each with its name: its own first, then those of prefixes,
        the longest first. No policy covers an internal topic.
        """
        if name.startswith("__"):
            return []
        own = [(name, self._by_name[name])] if name in self._by_name else []
        wider = [prefix for prefix in self._prefixes if name.startswith(prefix) and f"{prefix}*" != name]
        return own + [(f"{prefix}*", self._by_name[f"{prefix}*"]) for prefix in wider]
