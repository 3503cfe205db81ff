"""How settings are found: flags, environment, file, defaults. What is checked is in `sources`, which is imported
only while settings are being read.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from sidecar.settings.values import (
    DEFAULT_ADMIN_URL,
    ENV_PREFIX,
    Address,
    Problem,
    SettingsError,
    check_token,
    find_config,
    local_url,
    read_toml,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from sidecar.settings.told import Resolved
    from sidecar.settings.values import Settings


def resolve(flags: Mapping[str, object] | None = None, config: Path | None = None) -> Resolved:
    """Settings from `flags` (by field name; None: not given), the environment, a file and the defaults, in this order.

    `config` is the file to read instead of the first of `CONFIG_FILES` that exists. Raises SettingsError.
    """
    from sidecar.settings.sources import resolve as resolve_with_pydantic  # noqa: PLC0415 - as the module says

    return resolve_with_pydantic(flags or {}, config)


def load(flags: Mapping[str, object] | None = None, config: Path | None = None) -> Settings:
    """As `resolve`, the settings alone."""
    return resolve(flags, config).settings


class AdminAccess(NamedTuple):
    """Where tools find a node's HTTP side, and the token it wants."""

    url: str
    token: str | None


def admin_access(url: str | None = None, config: Path | None = None) -> AdminAccess:
    """Address and token for tools: flag, environment, file, default, as `resolve` but without checking all the rest.

    Without `SIDECAR_ADMIN_URL` the port of `SIDECAR_ADMIN_LISTEN` is taken, so that tools run beside a node, with its
    environment, find it. Raises SettingsError where the file cannot be read, where anything is wrong in the one that
    was asked for, and for a token that no node takes.
    """
    if config is not None:
        _check_file(config)
    path = find_config(config)
    table = {} if path is None else read_toml(path)

    def find(name: str) -> str | None:
        return os.environ.get(ENV_PREFIX + name.upper()) or str(table.get(name) or "") or None

    token = find("admin_token")
    try:
        check_token(token)
    except ValueError as error:
        name = f"{ENV_PREFIX}ADMIN_TOKEN"
        origin = "environment" if os.environ.get(name) else str(path)
        raise SettingsError([Problem(name, origin, "", f"{error}. It needs text without spaces.")]) from None
    return AdminAccess((url or find("admin_url") or _beside(find("admin_listen"))).rstrip("/"), token)


def _check_file(config: Path) -> None:
    """Raise SettingsError with what is wrong in this file; a node's other settings are no matter of its tools."""
    try:
        resolve({}, config)
    except SettingsError as error:
        problems = [each for each in error.problems if each.origin == str(config)]
        if problems:
            raise SettingsError(problems) from None


def _beside(admin_listen: str | None) -> str:
    try:
        return local_url(Address.parse(admin_listen or ""))
    except ValueError:
        return DEFAULT_ADMIN_URL
