"""Settings out of flags, the environment and a file, checked by `schema`. Every problem is found in one go, and each
names the setting, where its value stood, the value, and what would be right.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from pydantic_settings import EnvSettingsSource

from sidecar.settings.listeners import own_setting
from sidecar.settings.loaded import LoadedSettings, full_name, text_of
from sidecar.settings.misfits import misfits
from sidecar.settings.schema import OwnSettings, Schema, needs
from sidecar.settings.values import (
    DEDUPLICATES_ALL,
    ENV_PREFIX,
    Problem,
    Settings,
    SettingsError,
    find_config,
    read_toml,
)

_NOT_OURS: Final = ("SIDECAR_STATE_DIR", "SIDECAR_LOCAL_", "SIDECAR_PURE")
"""Beginnings of variables that belong to `sidecar up` and its embedded parts."""
_OF_LISTENER: Final = re.compile(r"SIDECAR_LISTENER_(?!(SERVICE|PORT)(_|$)).*(SSL|SASL|SECURITY)", re.IGNORECASE)
"""Variables that ask for a listener's TLS or login; the exceptions are those of a Kubernetes Service, as below."""
_SECURITY: Final = re.compile(r"SIDECAR_(KAFKA_)?(TLS|SASL|SSL|SECURITY)(_(?!SERVICE_|PORT$|PORT_)|$)")
"""Variables that ask for TLS or SASL; a Kubernetes Service called so has others made (`…_SERVICE_HOST`, `…_PORT`)."""


def resolve(flags: Mapping[str, object], config: Path | None) -> LoadedSettings:
    """See `sidecar.settings.resolve`."""
    problems: list[Problem] = []
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    path = find_config(config)
    if path is not None:
        try:
            _take(_known(read_toml(path), path, problems), f"{path}", values, origins)
        except SettingsError as error:
            problems.extend(error.problems)
    _take(EnvSettingsSource(Schema)() | _own_variables(), "environment", values, origins)
    problems.extend(_unserved_security())
    _take({name: value for name, value in flags.items() if value is not None}, "flag", values, origins)
    own = {name: values.pop(name) for name in sorted(values) if own_setting(name) is not None}
    checked = _check_own(own, origins, problems)
    try:
        found = Schema(**values)
    except ValidationError as error:
        problems.extend(_problems(error, origins))
        raise SettingsError(problems, _unknown_variables()) from None
    settings = Settings(**{name: getattr(found, name) for name in Schema.model_fields}, listener_settings=checked)
    if settings.listeners:
        first = settings.all_listeners[0]
        settings = replace(
            settings, listen=first.listen, advertise=first.advertise, security_protocol=first.security_protocol
        )
    problems += [
        Problem(full_name(name), origins.get(name, "not set"), "", advice)
        for name, advice in misfits(settings, origins)
    ]
    if problems:
        raise SettingsError(problems, _unknown_variables())
    given = {name: value for name, value in flags.items() if value is not None}
    read = None if path is None else str(path)
    return LoadedSettings(settings, origins, given, read, warnings=tuple(_warnings(settings)))


def _take(found: Mapping[str, Any], origin: str, values: dict[str, Any], origins: dict[str, str]) -> None:
    for name, value in found.items():
        values[name] = value
        origins[name] = origin


def _known(table: dict[str, Any], path: Path, problems: list[Problem]) -> dict[str, Any]:
    known = Schema.model_fields.keys() | {key for key in table if own_setting(key) is not None}
    for key in sorted(table.keys() - known):
        near = get_close_matches(key.lower(), Schema.model_fields, 1)
        advice = (
            f"there is no such setting; did you mean {near[0]}?" if near else "there is no such setting: take it out."
        )
        problems.append(Problem(key, str(path), "", advice))
    return {key: value for key, value in table.items() if key in known}


def _own_variables() -> dict[str, str]:
    """The variables that set something for one listener, by the name of the setting."""
    found = {name.lower().removeprefix(ENV_PREFIX.lower()): value for name, value in os.environ.items() if value}
    return {name: value for name, value in found.items() if own_setting(name) is not None}


def _check_own(own: Mapping[str, Any], origins: Mapping[str, str], problems: list[Problem]) -> dict[str, str]:
    """Settings of one listener, each checked as the one of all listeners is."""
    found: dict[str, str] = {}
    for name, value in own.items():
        setting = (own_setting(name) or ("", ""))[1]
        try:
            checked = getattr(OwnSettings(**{setting: value}), setting)
        except ValidationError as error:
            problems.extend(_problems(error, origins, {setting: name}))
        else:
            found[name] = checked
    return found


def _problems(
    error: ValidationError, origins: Mapping[str, str], names: Mapping[str, str] | None = None
) -> list[Problem]:
    """`names`: what settings are called here whose name in the schema is another."""
    found: dict[str, Problem] = {}
    for each in error.errors(include_url=False):
        field = Schema.model_fields[str(each["loc"][0])]
        name = (names or {}).get(str(each["loc"][0]), str(each["loc"][0]))
        said = str(each["ctx"]["error"]) if each["type"] == "value_error" and "ctx" in each else ""
        advice = (
            f"{said}. It needs {needs(field)}." if said and "required" not in said else said or f"needs {needs(field)}."
        )
        value = "" if name not in origins else text_of(name, each["input"])
        found.setdefault(name, Problem(full_name(name), origins.get(name, "not set"), value, advice))
    return list(found.values())


def _unserved_security() -> list[Problem]:
    """A user that asks for security must not get a node without."""
    advice = "there is no such setting, and none without it is as safe: correct it, or take it out"
    served = {full_name(name) for name in Schema.model_fields}
    asked = sorted(
        name
        for name, value in os.environ.items()
        if value and (_SECURITY.match(name.upper()) or _asks_of_listener(name)) and name.upper() not in served
    )
    return [Problem(name, "environment", "", advice) for name in asked]


def _asks_of_listener(name: str) -> bool:
    is_known = own_setting(name.lower().removeprefix(ENV_PREFIX.lower())) is not None
    return _OF_LISTENER.match(name) is not None and not is_known


def _unknown_variables() -> list[Problem]:
    """A warning for each misspelt variable. It is no error, as orchestrators set some of their own."""
    known = {full_name(name) for name in Schema.model_fields} | {full_name(name) for name in _own_variables()}
    found: list[Problem] = []
    for name in sorted(os.environ):
        ours = name.startswith(ENV_PREFIX) and not name.startswith(_NOT_OURS)
        asks = _SECURITY.match(name.upper()) or _OF_LISTENER.match(name)
        if ours and name.upper() not in known and not asks:
            near = get_close_matches(name, known, 1, cutoff=0.8)
            advice = f"ignored: there is no such setting{f'; did you mean {near[0]}?' if near else '.'}"
            found.append(Problem(name, "environment", "", advice))
    return found


def _warnings(settings: Settings) -> list[Problem]:
    found = _unknown_variables()
    if settings.redis_timeout_ms >= settings.lease_ms:
        advice = f"is not below SIDECAR_LEASE_MS ({settings.lease_ms}): one slow answer of Redis can cost the lease."
        found.append(Problem("SIDECAR_REDIS_TIMEOUT_MS", "settings", str(settings.redis_timeout_ms), advice))
    if settings.deduplication:
        found.append(Problem("SIDECAR_DEDUPLICATION", "settings", "true", DEDUPLICATES_ALL))
    return found
