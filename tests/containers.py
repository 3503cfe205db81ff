"""Kafka and Redis in containers of this machine's Docker engine, configured as the embedded ones are.

Kafka's port on this side is chosen by the engine when the container starts, and a broker has to advertise it. So the
container's command waits for a file with the advertised listeners and then runs the image's own command, as
testcontainers does for its Kafka images. Whatever does not work ends within a bound, as `NotStartedError`.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sidecar.local.jars import DEFAULT_VERSION
from sidecar.local.java import MINIMUM, Java
from sidecar.local.kafka import new_cluster_id
from sidecar.local.kafka_config import KafkaConfig, Ports, broker_properties
from sidecar.local.ports import HOST
from sidecar.local.probe import ask_kafka, ask_redis
from tests.wait import wait_for

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

KAFKA_IMAGE = os.environ.get("SIDECAR_TEST_KAFKA_IMAGE", f"apache/kafka:{DEFAULT_VERSION}")
REDIS_IMAGE = os.environ.get("SIDECAR_TEST_REDIS_IMAGE", "redis:8-alpine")
REDIS_COMMAND = ("redis-server", "--appendonly", "yes", "--save", "", "--maxmemory-policy", "noeviction")

_OUTSIDE: Final = 9092
_INSIDE: Final = 19092
_CONTROLLER: Final = 9093
_ENGINE_S: Final = 20  # without an answer of the engine to one request
_START_S: Final = 75  # of one container, until its server answers
_PULL_S: Final = 600  # of one image
PULL_SILENCE_S = 60  # the engine reports its progress many times a second, and nothing while it cannot connect

# SIGALRM ends it: nothing that docker-py offers bounds a pull.
_PULL: Final = """
import signal, sys, docker
image, silence = sys.argv[1], int(sys.argv[2])
signal.alarm(silence)
for event in docker.from_env().api.pull(image, stream=True, decode=True):
    signal.alarm(silence)
    if "error" in event:
        sys.exit(event["error"])
"""

# The file is moved to its place, so that nobody reads half of it.
_ADVERTISED: Final = "/tmp/advertised-listeners"
_COMMAND: Final = f"""
until [ -f {_ADVERTISED} ]; do sleep 0.1; done
KAFKA_ADVERTISED_LISTENERS=$(cat {_ADVERTISED}); export KAFKA_ADVERTISED_LISTENERS
exec "$@"
"""


class NotStartedError(Exception):
    """The engine answers, and cannot bring an image here or run it. The message is one line."""


def refusal() -> str | None:
    """Why no container can be asked for; None where an engine answers."""
    if not os.environ.get("DOCKER_HOST") and not Path("/var/run/docker.sock").exists():
        return "no Docker engine: neither DOCKER_HOST nor /var/run/docker.sock"
    import docker  # noqa: PLC0415  slow to import, and most machines without an engine stop above
    from docker.errors import DockerException  # noqa: PLC0415

    try:
        client = docker.from_env(timeout=5)
        try:
            client.ping()
        finally:
            client.close()
    except (DockerException, OSError) as error:
        return f"no Docker engine answers: {_line(error)}"
    return None


def pull(tell: Callable[[str], None]) -> None:
    """Bring the images here that the engine does not have. Raises NotStartedError.

    One of them is Ryuk's, which removes the containers of a run that was killed; without it there is nobody to do that.
    """
    from testcontainers.core.config import testcontainers_config  # noqa: PLC0415  as docker above

    prefix = testcontainers_config.hub_image_name_prefix
    for image in (REDIS_IMAGE, KAFKA_IMAGE):
        _have(prefix + image, tell)
    if not testcontainers_config.ryuk_disabled:
        try:
            _have(testcontainers_config.ryuk_image, tell)
        except NotStartedError as error:
            tell(f"containers of a run that is killed stay: {error}")
            testcontainers_config.ryuk_disabled = True


def _have(image: str, tell: Callable[[str], None]) -> None:
    import docker  # noqa: PLC0415  as above
    from docker.errors import DockerException, ImageNotFound  # noqa: PLC0415

    client = docker.from_env(timeout=_ENGINE_S)
    try:
        client.images.get(image)
    except ImageNotFound:
        tell(f"pulling {image}")
        _pull(image)
    except (DockerException, OSError) as error:
        raise NotStartedError(_line(error)) from None
    finally:
        client.close()


def _pull(image: str) -> None:
    command = [sys.executable, "-c", _PULL, image, str(PULL_SILENCE_S)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PULL_S)
    except subprocess.TimeoutExpired:
        raise NotStartedError(f"{image} was not pulled within {_PULL_S} s") from None
    if ended.returncode < 0:
        raise NotStartedError(f"{image} cannot be pulled: nothing came of it for {PULL_SILENCE_S} s")
    if ended.returncode:
        raise NotStartedError(f"{image} cannot be pulled: {_line(ended.stderr)}")


@contextmanager
def running() -> Iterator[tuple[str, str]]:
    """`host:port` of Kafka and the URL of Redis, while both run. Raises NotStartedError."""
    with ExitStack() as containers:
        yield _start(containers)


def _start(containers: ExitStack) -> tuple[str, str]:
    from docker.errors import DockerException  # noqa: PLC0415  as above
    from testcontainers.core.exceptions import ContainerConnectException, ContainerStartException  # noqa: PLC0415

    try:
        return _kafka(containers), _redis(containers)
    except (DockerException, ContainerConnectException, ContainerStartException, OSError, StopIteration) as error:
        raise NotStartedError(_line(error)) from None  # StopIteration: it ended before its port was known


def _redis(containers: ExitStack) -> str:
    redis = _container(REDIS_IMAGE).with_exposed_ports(6379).with_command(list(REDIS_COMMAND))
    containers.enter_context(redis)
    host, port = _address(redis, 6379)
    _answers(redis, lambda: ask_redis(host, port), "Redis")
    return f"redis://{host}:{port}/0"


def _kafka(containers: ExitStack) -> str:
    kafka = _container(KAFKA_IMAGE).with_exposed_ports(_OUTSIDE).with_envs(**kafka_environment())
    kafka.with_command(["sh", "-c", _COMMAND, "sh", *_own_command(kafka)])
    containers.enter_context(kafka)
    host, port = _address(kafka, _OUTSIDE)
    listeners = shlex.quote(f"PLAINTEXT://{host}:{port},INSIDE://localhost:{_INSIDE}")
    written = f"echo {listeners} > {_ADVERTISED}.new && mv {_ADVERTISED}.new {_ADVERTISED}"
    kafka.exec(["sh", "-c", written])
    _answers(kafka, lambda: ask_kafka(host, port), "Kafka")
    return f"{host}:{port}"


def kafka_environment() -> dict[str, str]:
    """The embedded broker's properties as variables of Apache's image, with listeners for the inside of a container.

    `advertised.listeners` is not among them. The image merges no file of its own into these.
    """
    config = KafkaConfig()
    properties = broker_properties(config, 1, {1: Ports(_OUTSIDE, _CONTROLLER)}, Path("/var/lib/kafka/data"))
    del properties["advertised.listeners"]
    properties |= {
        "listeners": f"PLAINTEXT://:{_OUTSIDE},INSIDE://localhost:{_INSIDE},CONTROLLER://localhost:{_CONTROLLER}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
        "controller.quorum.voters": f"1@localhost:{_CONTROLLER}",
    }
    variables = {f"KAFKA_{name.upper().replace('.', '_')}": value for name, value in properties.items()}
    return variables | {
        "CLUSTER_ID": new_cluster_id(),
        "KAFKA_HEAP_OPTS": " ".join(Java(Path("java"), MINIMUM).flags(config.heap_mb, config.tuning)),
    }


def _container(image: str) -> "DockerContainer":
    from testcontainers.core.container import DockerContainer  # noqa: PLC0415  as docker above

    return DockerContainer(image, docker_client_kw={"timeout": _ENGINE_S})


def _own_command(container: "DockerContainer") -> list[str]:
    """What the container's image runs where it is not told what."""
    return container.get_docker_client().client.images.get(container.image).attrs["Config"]["Cmd"] or []


def _address(container: "DockerContainer", port: int) -> tuple[str, int]:
    """Where a port of a running container is for us. `localhost` would be tried by IPv6 first, which may be off."""
    host = container.get_container_host_ip()
    return HOST if host == "localhost" else host, int(container.get_exposed_port(port))


def _answers(container: "DockerContainer", ask: Callable[[], object], name: str) -> None:
    """Wait until a server answers. Raises NotStartedError with the last line that it wrote, at once when it ended."""

    def settled() -> bool:
        if ask() is not None:
            return True
        container.reload()
        return container.status in {"exited", "dead"}

    try:
        wait_for(settled, name, _START_S)
    except AssertionError:
        problem = f"does not answer within {_START_S} s"
    else:
        if ask() is not None:
            return
        problem = "ended"
    said = b"".join(container.get_logs()).decode(errors="replace")
    raise NotStartedError(f"{name} in its container {problem}: {_line(said) or 'it wrote nothing'}")


def _line(said: object) -> str:
    """The last line of a text."""
    return next((line.strip() for line in reversed(str(said).splitlines()) if line.strip()), "")
