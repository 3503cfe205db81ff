"""`sidecar up`: a real Kafka, a real Valkey and a node, on this machine, until Ctrl-C.

Starts and watches them; what Kafka and Valkey need is in `sidecar.local`, what a node needs in `sidecar serve`.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import rich_click as click

from sidecar.cli.embedded import embedded_parts, start_node
from sidecar.cli.options import Shared, config_option, examples, pass_shared
from sidecar.cli.output import CommandError, Exit, pairs
from sidecar.cli.setting_flags import resolve_settings
from sidecar.cli.signals import interruptible
from sidecar.local import Endpoints, Stack, StackConfig, VariablesError, find_running
from sidecar.local.ports import HOST, is_free
from sidecar.local.progress import ProgressDisplay
from sidecar.local.stack import Running, default_state_directory
from sidecar.settings import DEFAULT_ADMIN_URL, Address, AdminAccess, Problem, Settings, local_url


@examples(
    "sidecar up",
    "sidecar up --state-dir ./second --kafka-port 0 --redis-port 0"
    " --listen 127.0.0.1:19192 --admin-listen 127.0.0.1:18180",
    "sidecar up --secure",
)
@click.command()
@click.option("--listen", metavar="HOST:PORT", help="Address for Kafka clients. [env: SIDECAR_LISTEN]")
@click.option("--admin-listen", metavar="HOST:PORT", help="Address for health and REST. [env: SIDECAR_ADMIN_LISTEN]")
@click.option("--kafka-port", type=click.IntRange(0, 65_535), help="Port of Kafka; 0: a free one.")
@click.option("--redis-port", type=click.IntRange(0, 65_535), help="Port of Valkey; 0: a free one.")
@click.option("--state-dir", type=click.Path(file_okay=False, path_type=Path), help="Where data stays between runs.")
@click.option("--secure", is_flag=True, help="TLS, logins and ACLs everywhere, with certificates and users made here.")
@config_option
@pass_shared
def up(shared: Shared, state_dir: Path | None, **said: Any) -> None:
    """Start a real Apache Kafka, a real Valkey and a node in front of them, without Docker or anything installed.

    What is missing is downloaded once. Data stays in the state directory. Ctrl-C stops everything.

    With --secure clients log in by SCRAM-SHA-512 over TLS, Kafka's ACLs hold, and the admin port takes TLS and tokens.
    Certificates, passwords and files for clients are in the state directory, under `secured`. Its data then stays
    closed: a start without --secure is refused.
    """
    with embedded_parts():
        directory = state_dir or default_state_directory()
        running = find_running(directory)
        if running is not None:
            _print_running(running, directory)
            return
        # Faults are reported before anything is downloaded.
        config, settings = _read_settings(shared, {"directory": directory, **said})
        _check_free(settings, config)
        with interruptible():
            _run(config, shared, settings)


def _read_settings(shared: Shared, said: Mapping[str, Any]) -> tuple[StackConfig, Settings]:
    """What to run, from flags and all other sources. Raises CommandError that names every problem."""
    flags = {name: said[name] for name in ("listen", "admin_listen")}
    if said["secure"]:
        from sidecar.cli import secured  # noqa: PLC0415 - takes 0.1 s to import; only --secure needs it

        flags |= secured.node_settings(said["directory"])
    try:
        config = StackConfig.of(**{name: said[name] for name in ("directory", "kafka_port", "redis_port")})
    except VariablesError as error:
        problems = [Problem(name, "environment", value, advice) for name, value, advice in error.problems]
        resolve_settings(shared, flags, problems)  # raises
        raise
    try:
        settings = resolve_settings(shared, flags).settings
    except CommandError as error:
        if said["secure"]:
            error.remedy = (
                "--secure sets TLS and logins itself, for one listener: leave out settings that say otherwise"
            )
        raise
    if said["secure"]:
        config = replace(config, secured=(settings.advertise.host, settings.admin_advertise.host))
    return config, settings


def _run(config: StackConfig, shared: Shared, settings: Settings) -> None:
    """Start everything, wait until a process ends or the user stops it, stop everything."""
    stack = Stack(config)
    try:
        endpoints = _start(stack, shared, settings)
        _print_started(stack, endpoints, settings)
        ended = stack.wait()
        if ended is not None:
            raise CommandError(
                f"{ended.name} has ended with exit code {ended.exit_code}; its log is {ended.command.log}"
            )
    except KeyboardInterrupt:
        click.echo(err=True)
    finally:
        stack.stop(lambda name: click.echo(f"stopping {name}", err=True))


def _start(stack: Stack, shared: Shared, settings: Settings) -> Endpoints:
    access = AdminAccess(_admin_url(settings), None, own=settings.admin_ssl_certificate)
    with ProgressDisplay() as progress:
        endpoints = stack.start(progress)
        start_node(
            stack,
            endpoints,
            progress,
            access,
            str(settings.listen),
            str(settings.admin_listen),
            advertised=str(settings.advertise),
            config=shared.config,
            has_listeners=bool(settings.listeners),
        )
    return endpoints


def _check_free(settings: Settings, config: StackConfig) -> None:
    """Raise CommandError with every address that is in use or cannot be used, each with the option that changes it."""
    named = {f"--listeners ({each.name})": each.listen for each in settings.all_listeners}
    served = {
        **(named if settings.listeners else {"--listen": settings.listen}),
        "--admin-listen": settings.admin_listen,
    }
    unset = [f"{name} needs a port here, not 0" for name, address in served.items() if address.port == 0]
    if unset:
        raise CommandError("\n".join(unset), Exit.USAGE)
    taken = [
        f"{reason}: choose another one with {name}" for name, address in served.items() if (reason := _taken(address))
    ]
    for name, port in (("--kafka-port", config.kafka_port), ("--redis-port", config.redis_port)):
        if port and (reason := _taken(Address(HOST, port))):
            taken.append(f"{reason}: choose another one with {name} (0: a free one)")
    if taken:
        raise CommandError("\n".join(taken), Exit.CONFLICT)


def _taken(address: Address) -> str:
    """Why nothing can listen at `address`, "" if it is free."""
    try:
        return "" if is_free(address.port, address.host) else f"{address} is in use by another program"
    except OSError as error:
        return f"nobody can listen at {address} ({error.strerror})"


def _print_running(running: Running, directory: Path) -> None:
    """Print what the first `up` runs, for a second one."""
    lines = {part.name: f"{part.address}{'' if part.answers else ', starting'}" for part in running.parts}
    click.echo(f"already running (process {running.owner.pid}), with its data in {directory}:\n")
    click.echo(pairs(lines or {"state": "starting"}))
    click.echo(
        f"\nCtrl-C there, or `kill {running.owner.pid}`, stops it. Another one beside it needs data and ports of its "
        "own: --state-dir, --listen, --admin-listen, --kafka-port 0 and --redis-port 0.",
        err=True,
    )


def _print_started(stack: Stack, endpoints: Endpoints, settings: Settings) -> None:
    url, directory = _admin_url(settings), stack.config.directory.absolute()
    lines: dict[str, str | list[str]] = {
        "sidecar": _for_clients(settings),
        "admin": f"{url}   a page for your browser; health, metrics, REST",
        "kafka": f"{endpoints.kafka}   clients that connect here bypass the sidecar",
        "redis": endpoints.redis,
        "data, logs": str(directory),
    }
    program = _program() + ("" if url == DEFAULT_ADMIN_URL else f" --admin-url {url}")
    elsewhere = "" if directory == default_state_directory() else f"SIDECAR_STATE_DIR={directory} "
    commands = [
        f"{program} topic set orders --access exclusive",
        f"{program} status",
        f"{elsewhere}{program} doctor",
    ]
    if stack.config.secured:
        from sidecar.cli import secured  # noqa: PLC0415 - as above

        lines |= secured.facts(stack.secrets)
        commands = secured.examples(stack.secrets, str(settings.advertise), url, _program())
    click.echo(f"\n{pairs(lines)}\n\nTry in another terminal:\n")
    for command in commands:
        click.echo(f"  {command}")
    click.echo("\nCtrl-C stops everything.", err=True)


def _admin_url(settings: Settings) -> str:
    return local_url(settings.admin_listen, tls=settings.admin_ssl_certificate is not None)


def _for_clients(settings: Settings) -> str | list[str]:
    if not settings.listeners:
        return f"{settings.advertise}   bootstrap.servers for your Kafka clients"
    return [f"{each.advertise}   for your Kafka clients at {each.name}" for each in settings.all_listeners]


def _program() -> str:
    """How to call this program from the user's directory."""
    found = shutil.which("sidecar")
    if found is not None:
        return "sidecar"
    beside = Path(sys.executable).with_name("sidecar")
    here = Path.cwd()
    shown = beside.relative_to(here) if beside.is_relative_to(here) else beside
    return str(shown) if os.access(beside, os.X_OK) else f"{sys.executable} -m sidecar"
