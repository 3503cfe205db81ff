"""A node's settings with where each value stood and how to read them again, on their way to its process; and settings
as people see them, without what is secret. Reads nothing by itself and checks nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final, NamedTuple, cast

from sidecar.settings.listeners import NamedAddress, NamedProtocol, own_setting
from sidecar.settings.values import ENV_PREFIX, Address, Problem, Settings

SECRETS: Final = frozenset(each.name for each in fields(Settings) if each.metadata.get("secret"))
"""Settings that are never shown."""
RELOADABLE: Final = frozenset(
    {
        *("admin_hosts", "admin_read_token", "admin_token"),
        *("disconnect_grace_ms", "log_format", "log_level", "max_claims_per_principal", "queue_limit"),
        "retry_buffer_bytes",
    }
)
"""Settings of which a node takes other values while it runs (`sidecar.node.reload`)."""
MASK: Final = "***"
_PASSWORD_PARAMETER: Final = re.compile(r"(?i)(?<=[?&])(\w*(?:password|pass|auth|token))=[^&#]*")


_OWN: Final = "listener_settings"
_SHORT_FORM: Final = ("listen", "advertise", "security_protocol")


class Shown(NamedTuple):
    """One setting for people: full name, value as text (masked where it is secret), where it was found, whether a node
    takes another value while it runs.
    """

    setting: str
    value: str
    origin: str
    reloadable: bool


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """The settings that a node starts with, where each value was found (by field name; default where it is
    missing), and what it takes to read them again: the flags, the file that was read (None: there was none), which
    worker the node is.
    `outdated`: they were read before the last SIGHUP, so they are to be read again at once.
    """

    settings: Settings
    origins: Mapping[str, str] = field(default_factory=dict[str, str])
    flags: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    config: str | None = None
    worker: int = 0
    outdated: bool = False
    warnings: tuple[Problem, ...] = field(default=(), repr=False, compare=False)
    """What is odd about them without being wrong; stays in this process."""

    @property
    def shown(self) -> tuple[Shown, ...]:
        """Every setting for people, behind them those that one listener has of its own."""
        of_one = _SHORT_FORM if self.settings.listeners else ()  # say nothing where several listeners are named
        values = {
            each.name: "" if each.name in of_one else getattr(self.settings, each.name)
            for each in fields(Settings)
            if each.name != _OWN
        }
        return tuple(
            Shown(full_name(name), text_of(name, value), self.origins.get(name, "default"), name in RELOADABLE)
            for name, value in {**values, **self.settings.listener_settings}.items()
        )

    def for_worker(self, index: int) -> LoadedSettings:
        """What worker `index` gets."""
        return replace(self, settings=self.settings.for_worker(index), worker=index)

    def to_json(self) -> str:
        """For another process of this version; holds secrets."""
        return json.dumps(asdict(replace(self, warnings=())))

    @classmethod
    def from_json(cls, text: str) -> LoadedSettings:
        """The opposite of `to_json`; checks nothing."""
        found: dict[str, Any] = json.loads(text)
        return cls(**{**found, "settings": Settings.from_plain(found["settings"])})


def differing(one: Settings, other: Settings) -> list[str]:
    """The settings that differ, with those that one listener has of its own."""
    names = [each.name for each in fields(one) if each.name != _OWN]
    names = [name for name in names if getattr(one, name) != getattr(other, name)]
    mine, theirs = one.listener_settings, other.listener_settings
    return names + [name for name in sorted({*mine, *theirs}) if mine.get(name) != theirs.get(name)]


def full_name(name: str) -> str:
    """A setting as people write it: the name of its variable."""
    return ENV_PREFIX + name.upper()


def text_of(name: str, value: Any) -> str:
    """A value as people write it; secrets, and passwords in URLs, are masked."""
    if value is None:
        return ""
    own = own_setting(name)
    if name in SECRETS or (own is not None and own[1] in SECRETS):
        return MASK
    if name.endswith("_url"):
        return _without_password(str(value))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Address | NamedAddress | NamedProtocol):
        return str(value)
    if isinstance(value, list | tuple):
        return ",".join(map(str, cast("list[object]", value)))
    return str(value)


def _without_password(value: str) -> str:
    """A URL without what may be a password: the user's, or a parameter's, as Redis takes one for a socket."""
    value = _PASSWORD_PARAMETER.sub(rf"\1={MASK}", value)
    before, at, host = value.rpartition("@")
    if not at:
        return value
    scheme, slashes, who = before.partition("://")
    user, colon, _ = who.partition(":") if slashes else ("", ":", "")
    return f"{scheme if slashes else ''}{slashes}{user}{colon and f':{MASK}'}@{host}"
