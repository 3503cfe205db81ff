"""What `up` and `demo` have in common: the embedded parts, which are an extra, and a node in front of them."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from sidecar.cli.api import AdminApi
from sidecar.cli.failure import CommandError
from sidecar.settings import AdminAccess, local_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.local import Endpoints, Stack
    from sidecar.settings import Address

_NODE: Final = "node"
_PROBE_TIMEOUT: Final = 2.0
_NODE_TIMEOUT: Final = 60.0


@contextmanager
def embedded_parts() -> Iterator[None]:
    """Where they are missing, and where they fail, that is a CommandError."""
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


def start(stack: Stack, listen: Address, admin_listen: Address, *more: str) -> Endpoints:
    """Start the parts and a node that serves them, with `more` arguments; returns once it is ready."""
    from sidecar.local.process import Command  # noqa: PLC0415
    from sidecar.local.progress import ProgressDisplay, Step  # noqa: PLC0415

    with ProgressDisplay() as progress:
        endpoints = stack.start(progress)
        progress(Step(_NODE, "starting the node", 0, 1))
        arguments = ["--bootstrap-servers", endpoints.kafka, "--redis-url", endpoints.redis]
        arguments += ["--listen", str(listen), "--admin-listen", str(admin_listen), *more]
        program = (sys.executable, "-m", "sidecar", "serve", *arguments)
        command = Command(_NODE, program, stack.config.directory / "node.log", dies_by=signal.SIGTERM)
        api = AdminApi(AdminAccess(local_url(admin_listen), None), _PROBE_TIMEOUT)
        stack.spawn(command, str(listen), lambda: _ready(api), _NODE_TIMEOUT)
        progress(Step(_NODE, "the node serves", 1, 1))
    return endpoints


def _ready(api: AdminApi) -> bool:
    try:
        api.get("/readyz")
    except CommandError:
        return False
    return True
