"""What the compose schema cannot see: names that point nowhere, ports that do not meet, a broker open to the world.

Each rule takes the parsed file and yields one sentence for each fault. Nothing here needs Docker.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from sidecar.cli.root import cli
from sidecar.settings import Settings
from tests.unit.deploy.dockerfile_rules import parse
from tests.unit.deploy.files import DOCKERFILE, ROOT, Tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SETTINGS = frozenset(f"SIDECAR_{field.name.upper()}" for field in fields(Settings))
COMMANDS = frozenset(cli.list_commands(click.Context(cli)))
NODES = ("sidecar-1", "sidecar-2")
BACKEND = ("kafka", "redis")
CLIENTS = ("relay", "demo", "load")  # they share the network of node 1, under the profiles they belong to
PROFILES = {"relay": {"demo", "load"}, "demo": {"demo"}, "load": {"load"}, "pipeline": {"pipeline"}}
RESTART = {"pipeline": "no", "demo": "on-failure", "load": "on-failure"}
JOBS = ("pipeline",)  # run once, when somebody wants them
WRITABLE = ("kafka",)  # its start script writes the configuration it made into the image's file system

_INTERPOLATION = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")
_IMAGE = re.compile(r"[a-z0-9][a-z0-9./-]*:(?!latest$)[\w.-]+")


@dataclass(frozen=True, slots=True)
class Publication:
    """One published port."""

    address: str
    host: int
    container: int


def resolved(text: str) -> str:
    """`text` as it is for a user who has set no variable."""
    return _INTERPOLATION.sub(lambda found: found[2] or "", text)


def publications(service: Tree) -> list[Publication]:
    """Published ports of a service; a port without an address is published on every interface."""
    found: list[Publication] = []
    for entry in service.get("ports", []):
        address, host, container = ("0.0.0.0:" + resolved(entry)).rsplit(":", 3)[-3:]
        found.append(Publication(address, int(host), int(container)))
    return found


def references(compose: Tree) -> Iterator[str]:
    """Every network, volume and service that is named is there, and used."""
    services = compose["services"]
    for kind in ("networks", "volumes"):
        used: set[str] = set()
        for service in services.values():
            own = kind == "volumes" or "network_mode" in service
            names = service.get(kind, [] if own else ["default"])
            used |= {name.split(":")[0] for name in names if not name.startswith((".", "/"))}
        yield from (f"{kind}: {name} is used but not defined" for name in sorted(used - set(compose[kind])))
        yield from (f"{kind}: {name} is defined but not used" for name in sorted(set(compose[kind]) - used))
    for name, service in services.items():
        for other, how in service.get("depends_on", {}).items():
            if other not in services:
                yield f"{name} depends on {other}, which is not there"
            elif how["condition"] == "service_healthy" and "test" not in services[other].get("healthcheck", {}):
                yield f"{name} waits until {other} is healthy, and {other} has no health check"
            theirs = set(services.get(other, {}).get("profiles", []))
            if theirs and not set(service.get("profiles", ["without a profile"])) <= theirs:
                yield f"{name} depends on {other}, which is not always started with it"


def mounts(compose: Tree) -> Iterator[str]:
    """What is mounted from the repository exists and cannot be written."""
    for name, service in compose["services"].items():
        for source, _, *options in (volume.split(":") for volume in service.get("volumes", [])):
            if source.startswith("."):
                if not (ROOT / source).exists():
                    yield f"{name} mounts {source}, which is not there"
                if options != ["ro"]:
                    yield f"{name} can write to {source}"


def images(compose: Tree) -> Iterator[str]:
    """Images are named with a tag, can be replaced by a variable, and a tag is built once."""
    builds = Counter(service.get("image") for service in compose["services"].values() if "build" in service)
    yield from (f"{image} is built {count} times" for image, count in builds.items() if count > 1)
    for name, service in compose["services"].items():
        image = service.get("image", "")
        if not _INTERPOLATION.fullmatch(image):
            yield f"{name}: image {image!r} is not of the form ${{VARIABLE:-default}}"
        if not _IMAGE.fullmatch(resolved(image)):
            yield f"{name}: image {resolved(image)!r} has no fixed tag"


def interpolation(compose: Tree) -> Iterator[str]:
    """The file works with no variable set."""
    for name, default in _INTERPOLATION.findall(str(compose["services"])):
        if not default:
            yield f"${{{name}}} has no default"


def settings(compose: Tree) -> Iterator[str]:
    """Every `SIDECAR_*` variable is a setting of the product; clients are told what they ask for, and nothing else."""
    for name in sorted(set(re.findall(r"\bSIDECAR_[A-Z_]+", str(compose["services"])))):
        if name not in SETTINGS:
            yield f"{name} is no setting"
    for name in ("demo", "load"):
        asked = _asked(compose["services"][name]["command"][0])
        given = {key for key in compose["services"][name]["environment"] if not key.startswith("SIDECAR_")}
        yield from (f"{name} is given {key}, which it does not read" for key in sorted(given - asked))
        yield from (f"{name} cannot be told {key}" for key in sorted(asked - given))


def _asked(program: str) -> set[str]:
    """The variables that a program of deploy/compose reads as numbers."""
    text = (ROOT / "deploy" / "compose" / Path(program).name).read_text(encoding="utf-8")
    return set(re.findall(r'number\("(\w+)"', text))


def checks(compose: Tree) -> Iterator[str]:
    """What a health check or a command runs is there: a command of ours, or a program that is mounted."""
    for name, service in compose["services"].items():
        for words in (
            service.get("healthcheck", {}).get("test", [])[1:],
            [*service.get("entrypoint", []), *service.get("command", [])],
        ):
            if words[:1] == ["sidecar"] and words[1] not in COMMANDS:
                yield f"{name} runs `sidecar {words[1]}`, which is no command"
            if words[:1] == ["python"]:
                where, _, file = words[1].rpartition("/")
                mounted = {target: source for source, target, *_ in (each.split(":") for each in service["volumes"])}
                if where not in mounted or not (ROOT / mounted[where] / file).is_file():
                    yield f"{name} runs {words[1]}, which is not there"


def builds(compose: Tree) -> Iterator[str]:
    """What is built is a stage of the Dockerfile, and a port that is published is one its image has."""
    file = parse(DOCKERFILE.read_text(encoding="utf-8"))
    last = max(each.stage for each in file)
    stages = {
        each.arguments.split(" AS ")[1]: each.stage for each in file if each.name == "FROM" and " AS " in each.arguments
    }
    for name, service in compose["services"].items():
        if name not in (*NODES, *CLIENTS) and "build" not in service:
            continue
        target = service.get("build", {}).get("target")
        if target is not None and target not in stages:
            yield f"{name} is built from {target}, which is no stage"
            continue
        stage = last if target is None else stages[target]
        exposed = {
            int(port)
            for each in file
            if (each.stage, each.name) == (stage, "EXPOSE")
            for port in each.arguments.split()
        }
        for port in publications(service):
            if port.container not in exposed:
                yield f"{name} publishes {port.container}, which its image does not expose"


def clients(compose: Tree) -> Iterator[str]:
    """Clients stand beside node 1, and find node 2 where it tells that it is."""
    services = compose["services"]
    first, second = (services[name] for name in NODES)
    for name in CLIENTS:
        if services[name].get("network_mode") != f"service:{NODES[0]}":
            yield f"{name} is not in the network of {NODES[0]}"
        if services[name]["depends_on"].get(NODES[0]) != {"condition": "service_healthy", "restart": True}:
            yield f"{name} stays in a network that is gone when {NODES[0]} is made anew"
        if services[name]["image"] != first["image"]:
            yield f"{name} runs another image than the nodes"
    advertised = resolved(second["environment"]["SIDECAR_ADVERTISE"])
    listening = f"{NODES[1]}:{second['environment']['SIDECAR_LISTEN'].rsplit(':', 1)[1]}"
    beside = f"127.0.0.1:{first['environment']['SIDECAR_ADMIN_LISTEN'].rsplit(':', 1)[1]}"
    for words in (services["relay"]["command"], services["relay"]["healthcheck"]["test"][2:]):
        if words[1:3] != [advertised, listening]:
            yield f"relay leads from {words[1]} to {words[2]}, not from {advertised} to {listening}"
    if services["relay"]["command"][3:] != ["--beside", beside]:
        yield f"relay does not look whether {beside} is there"
    if resolved(first["environment"]["SIDECAR_ADVERTISE"]).rsplit(":", 1)[1] != listening.rsplit(":", 1)[1]:
        yield f"{NODES[0]} is not where it says in its own network"


def exposure(compose: Tree) -> Iterator[str]:
    """Brokers and Redis are reached through the nodes only; what is published is published on loopback."""
    if not compose["networks"]["backend"].get("internal"):
        yield "network backend is not internal"
    for name in BACKEND:
        service = compose["services"][name]
        if service.get("networks") != ["backend"]:
            yield f"{name} is in another network than backend"
        if service.get("ports"):
            yield f"{name} publishes a port"
    used = Counter[int]()
    for name, service in compose["services"].items():
        for port in publications(service):
            used[port.host] += 1
            if port.address != "127.0.0.1":
                yield f"{name} publishes {port.host} on {port.address}"
    yield from (f"port {port} is published {count} times" for port, count in used.items() if count > 1)


def addresses(compose: Tree) -> Iterator[str]:
    """A node advertises what is published for it, and finds Kafka and Redis where they are."""
    services = compose["services"]
    ids = [services[name]["environment"]["SIDECAR_NODE_ID"] for name in NODES]
    if len(set(ids)) != len(ids):
        yield f"node ids are {ids}"
    broker = services["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"].removeprefix("PLAINTEXT://")
    for name in NODES:
        environment = {key: resolved(value or "") for key, value in services[name]["environment"].items()}
        by_container = {port.container: port for port in publications(services[name])}
        for setting in ("SIDECAR_LISTEN", "SIDECAR_ADMIN_LISTEN"):
            host, port = environment[setting].rsplit(":", 1)
            if host != "0.0.0.0":
                yield f"{name}: {setting} is {host}, which nothing outside the container reaches"
            if int(port) not in by_container:
                yield f"{name}: {setting} is port {port}, which is not published"
        listening = by_container.get(int(environment["SIDECAR_LISTEN"].rsplit(":", 1)[1]))
        if listening and environment["SIDECAR_ADVERTISE"] != f"{listening.address}:{listening.host}":
            yield f"{name} advertises {environment['SIDECAR_ADVERTISE']} and is published at {listening}"
        inside = f"{name}:{environment['SIDECAR_ADMIN_LISTEN'].rsplit(':', 1)[1]}"
        if environment.get("SIDECAR_ADMIN_ADVERTISE") != inside:
            yield f"{name} is asked by the other node at {environment.get('SIDECAR_ADMIN_ADVERTISE')}, not at {inside}"
        if environment["SIDECAR_BOOTSTRAP_SERVERS"] != broker:
            yield f"{name} looks for Kafka at {environment['SIDECAR_BOOTSTRAP_SERVERS']}, which advertises {broker}"
        if environment["SIDECAR_REDIS_URL"] != "redis://redis:6379/0":
            yield f"{name} looks for Redis at {environment['SIDECAR_REDIS_URL']}"
        if services[name]["healthcheck"]["test"] != ["CMD", "sidecar", "healthcheck"]:
            yield f"{name} is not checked by `sidecar healthcheck`"


def hardening(compose: Tree) -> Iterator[str]:
    """Every service rotates its log, is started again, is checked and gains no privileges; most cannot write."""
    for name, service in compose["services"].items():
        if not {"max-size", "max-file"} <= set(service.get("logging", {}).get("options", {})):
            yield f"{name} does not rotate its log"
        if service.get("restart") != (wanted := RESTART.get(name, "unless-stopped")):
            yield f"{name} is restarted {service.get('restart')}, not {wanted}"
        if "no-new-privileges:true" not in service.get("security_opt", []):
            yield f"{name} can gain privileges"
        if not service.get("read_only") and name not in WRITABLE:
            yield f"{name} can write to its image"
        if name not in JOBS and "test" not in service.get("healthcheck", {}):
            yield f"{name} has no health check"
        if set(service.get("profiles", [])) != PROFILES.get(name, set()):
            yield f"{name} belongs to the profiles {service.get('profiles')}"
        if service.get("cap_drop") != ["ALL"] or "cap_add" in service:
            yield f"{name} keeps capabilities"
        if service.get("privileged") or service.get("pid") == "host" or service.get("network_mode") == "host":
            yield f"{name} is not kept apart from the host"


def engines(compose: Tree) -> Iterator[str]:
    """Docker Engine 20.10 runs it: `start_interval` ends `docker compose up` on every engine before 25."""
    for name, service in compose["services"].items():
        check = service.get("healthcheck", {})
        if "start_interval" in check:
            yield f"{name} needs Docker Engine 25 for its start_interval"
        if check and int(check["interval"].removesuffix("s")) > 5:
            yield f"{name} is healthy {check['interval']} after its start at the earliest"


def arbitration(compose: Tree) -> Iterator[str]:
    """Redis keeps what it is told and evicts nothing; Kafka's log is on its volume."""
    command = " ".join(compose["services"]["redis"]["command"])
    for option in ("--appendonly yes", "--appendfsync everysec", "--maxmemory-policy noeviction"):
        if option not in command:
            yield f"redis runs without {option}"
    kafka = compose["services"]["kafka"]
    if f"kafka-data:{kafka['environment'].get('KAFKA_LOG_DIRS')}" not in kafka["volumes"]:
        yield "Kafka's log is not on its volume"


RULES: tuple[Callable[[Tree], Iterator[str]], ...] = (
    references,
    mounts,
    images,
    interpolation,
    settings,
    checks,
    builds,
    clients,
    exposure,
    addresses,
    hardening,
    engines,
    arbitration,
)
