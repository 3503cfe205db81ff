"""How settings are found: flags, environment, file, defaults. What is checked is in `sources`, which is imported
only while settings are being read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from sidecar.settings.basics import DEFAULT_ADMIN_URL
from sidecar.settings.checks import check_token
from sidecar.settings.loaded import LoadedSettings
from sidecar.settings.values import (
    ENV_PREFIX,
    Address,
    Problem,
    Settings,
    SettingsError,
    find_config,
    local_url,
    read_toml,
)


def resolve(flags: Mapping[str, object] | None = None, config: Path | None = None) -> LoadedSettings:
    """Settings from `flags` (by field name; None: not given), the environment, a file and the defaults, in this order.

    `config` is the file to read instead of the first of `CONFIG_FILES` that exists. Raises SettingsError.
    """
    from sidecar.settings.sources import resolve as resolve_with_pydantic  # noqa: PLC0415 - as the module says

    return resolve_with_pydantic(flags or {}, config)


def load(flags: Mapping[str, object] | None = None, config: Path | None = None) -> Settings:
    """As `resolve`, the settings alone."""
    return resolve(flags, config).settings


_TOKENS: Final = ("admin_token", "admin_read_token")


class AdminAccess(NamedTuple):
    """Where tools find a node's HTTP side, the token it wants, and PEM files for `https://`.

    `own`: the certificate that the node beside these tools shows, which is then the only one that is trusted. Without
    it the certificate has to be for the host in `url`, under an authority in `ca` or of the system.
    """

    url: str
    token: str | None
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    own: str | None = None


def admin_access(url: str | None = None, config: Path | None = None) -> AdminAccess:
    """Address and token for tools: flag, environment, file, default, as `resolve` but without checking all the rest.

    Without `SIDECAR_ADMIN_URL` the port of `SIDECAR_ADMIN_LISTEN` is taken, so that tools run beside a node, with its
    environment, find it. Without `SIDECAR_ADMIN_TOKEN` they show `SIDECAR_ADMIN_READ_TOKEN`. Raises SettingsError
    where the file cannot be read, where anything is wrong in the one that was asked for, and for a token that no node
    takes.
    """
    if config is not None:
        _check_file(config)
    path = find_config(config)
    table = {} if path is None else read_toml(path)

    def find(name: str) -> str | None:
        return os.environ.get(ENV_PREFIX + name.upper()) or str(table.get(name) or "") or None

    tokens = [find(name) for name in _TOKENS]
    for name, token in zip(_TOKENS, tokens, strict=True):
        try:
            check_token(token)
        except ValueError as error:
            full = f"{ENV_PREFIX}{name.upper()}"
            origin = "environment" if os.environ.get(full) else str(path)
            raise SettingsError([Problem(full, origin, "", f"{error}. It needs text without spaces.")]) from None
    shown = next(filter(None, tokens), None)
    where = url or find("admin_url")
    served, authority = find("admin_ssl_certificate"), find("admin_ssl_ca")
    certificate, key = find("admin_client_ssl_certificate"), find("admin_client_ssl_key")
    if certificate is None and authority is not None:  # the node asks for one, and takes its own from other nodes
        certificate, key = served, find("admin_ssl_key")
    if where is None:
        where = _beside(find("admin_listen"), tls=served is not None)
        own = served
    else:
        own = None
    return AdminAccess(where.rstrip("/"), shown, find("admin_client_ssl_ca") or authority, certificate, key, own)


def _check_file(config: Path) -> None:
    """Raise SettingsError with what is wrong in this file; a node's other settings are no matter of its tools."""
    try:
        resolve({}, config)
    except SettingsError as error:
        problems = [each for each in error.problems if each.origin == str(config)]
        if problems:
            raise SettingsError(problems) from None


def _beside(admin_listen: str | None, *, tls: bool) -> str:
    try:
        return local_url(Address.parse(admin_listen or DEFAULT_ADMIN_URL.removeprefix("http://")), tls=tls)
    except ValueError:
        return DEFAULT_ADMIN_URL
