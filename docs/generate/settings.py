"""docs/reference/settings.md from `sidecar.settings.schema` and the variables of `sidecar.local`."""

from __future__ import annotations

from typing import Final

from docs.generate import markdown
from sidecar.local import stack
from sidecar.local.jars import DEFAULT_VERSION
from sidecar.local.kafka_config import VERSION_VARIABLE
from sidecar.settings import CONFIG_FILES, ENV_PREFIX
from sidecar.settings.listeners import OWN_SETTINGS
from sidecar.settings.loaded import RELOADABLE
from sidecar.settings.schema import Schema, is_secret, needs, shown_default

_BEFORE: Final = f"""
    A flag overrides the environment, the environment the file, and the file the default. Each setting `x_y` is the
    flag `--x-y`, the variable `{ENV_PREFIX}X_Y` and the key `x_y` in `sidecar.toml`. The file is the one of
    `--config`, else the first that exists of {{files}}; only one file is read. An empty variable counts as not set. An
    unknown key in the file is an error, an unknown variable a warning; but an unknown variable that begins like those
    of logins, TLS or one listener is an error.

    `sidecar check-config` reports all problems at once (exit code 2), `sidecar config show --origin` shows the
    effective values and their sources, and `sidecar config schema` prints a JSON schema of the file for editors. Copy
    settings from [sidecar.toml](../../deploy/sidecar.toml), which contains all of them; it has
    [a schema](../../deploy/sidecar.schema.json).
    """
_OWN: Final = f"""
    With `{ENV_PREFIX}LISTENERS` a node has several listeners for Kafka clients (KIP-103), and clients of each get
    the addresses that nodes advertise for it. The syntax and the rules are Kafka's: each name and each port once, `_`,
    `-`, letters and digits in a name, upper and lower case are the same, an empty host (`OUTSIDE://:19093`) means
    every interface; an IPv4 and an IPv6 address may share a port (KIP-797). Unlike with Kafka, each listener has an
    advertised address.

    The settings below are for all listeners. One listener may have its own: with the listener `OUTSIDE`,
    `ssl_client_auth` is the variable `{ENV_PREFIX}LISTENER_OUTSIDE_SSL_CLIENT_AUTH`, the key
    `listener_outside_ssl_client_auth` and the flag `--listener-outside-ssl-client-auth` (a `-` in the listener's name
    is `_` here). `ssl_key_password` has no flag. A setting for an unknown listener is an error.
    """

_LOCAL: Final = (
    (stack.STATE_VARIABLE, "`sidecar` under `$XDG_STATE_HOME` or `~/.local/state`", "Directory of data and logs."),
    (stack.KAFKA_PORT_VARIABLE, stack.DEFAULT_KAFKA_PORT, "Port of the embedded Kafka; 0: a free one."),
    (stack.REDIS_PORT_VARIABLE, stack.DEFAULT_REDIS_PORT, "Port of the embedded Valkey; 0: a free one."),
    (VERSION_VARIABLE, DEFAULT_VERSION, "Which Apache Kafka to run; 3.9.1, 4.1.1, 4.3.1 and 4.4.0 have a lock."),
)


def page() -> str:
    """All settings with defaults and bounds."""
    files = " and ".join(markdown.code(path if path.is_absolute() else f"./{path}") for path in CONFIG_FILES)
    return markdown.page(
        [
            "# Settings",
            "",
            *markdown.note("`sidecar/settings/schema.py`"),
            *markdown.prose(_BEFORE.format(files=files)),
            *markdown.table(("setting", "default", "takes", "meaning"), [_row(name) for name in Schema.model_fields]),
            "",
            "## Settings of one listener",
            "",
            *markdown.prose(_OWN),
            *(f"- {markdown.code(name)}" for name in OWN_SETTINGS),
            "",
            "## `sidecar serve --workers N`",
            "",
            "Worker i (from 0) has the node id plus i, and adds i to every port: of each listener and admin.",
            "",
            "## What `sidecar up` and `sidecar demo` run",
            "",
            "These are not settings of a node. Flags of `up` override them.",
            "",
            *markdown.table(
                ("variable", "default", "meaning"),
                [(markdown.code(name), str(default), text) for name, default, text in _LOCAL],
            ),
        ]
    )


def _row(name: str) -> tuple[str, str, str, str]:
    field = Schema.model_fields[name]
    text = str(field.description)
    if name in RELOADABLE:
        text += " Read again on SIGHUP."
    if is_secret(name):
        text += " Never shown, and no flag."
    return markdown.code(ENV_PREFIX + name.upper()), markdown.code(shown_default(name)), needs(field), text
