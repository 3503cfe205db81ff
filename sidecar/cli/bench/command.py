"""`sidecar bench`: what a node costs, compared with the Kafka behind it in one run, in alternating rounds."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import rich_click as click

from sidecar.cli.api import AdminApi
from sidecar.cli.bench.client import RefusedError
from sidecar.cli.bench.load import Clients, Load, Rate, alternate
from sidecar.cli.bench.stage import Stage, describe
from sidecar.cli.options import Shared, asks_a_node, examples
from sidecar.cli.output import CommandError, Exit, table, write
from sidecar.cli.pipeline.running import failures_in_a_sentence
from sidecar.cli.progress import Rounds
from sidecar.cli.setting_flags import settings_here
from sidecar.cli.signals import ENDING, handled_by
from sidecar.pipeline.security import PROTOCOL, Security, of_file, of_settings
from sidecar.protocol.addresses import addresses
from sidecar.protocol.codec import Codec
from sidecar.protocol.errors import error_name

_PERCENTILES: Final = {"p50": 0.5, "p99": 0.99, "p99_9": 0.999}
_MEGABYTE: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Found:
    """Results by target: the rate of each round, and the nanoseconds of all round trips."""

    rates: Mapping[str, list[Rate]]
    round_trips: dict[str, list[int]]

    def last(self) -> str:
        """The newest round as text."""
        return ", ".join(f"{name} {rates[-1].per_second:,.0f} records/s" for name, rates in self.rates.items())


def as_data(found: Found, targets: Mapping[str, Sequence[str]], said: Mapping[str, Any]) -> dict[str, Any]:
    """The data for `-o json`. Ratios are node to direct; for rates it is the median of the rounds' ratios, null without
    direct.
    """
    throughput = {name: _throughput(rates, said["size"]) for name, rates in found.rates.items()}
    latency = {name: _latency(took) for name, took in found.round_trips.items() if took}
    return {
        "targets": targets,
        "options": dict(said),
        "throughput": throughput,
        "latency_ms": latency,
        "ratio": _ratios(found, latency),
    }


def _throughput(rates: Sequence[Rate], record_bytes: int) -> dict[str, Any]:
    middle = median(each.per_second for each in rates)
    return {
        "records": sum(each.records for each in rates),
        "records_per_second": round(middle, 1),
        "megabytes_per_second": round(middle * record_bytes / _MEGABYTE, 3),
        "rounds": [{"records": each.records, "seconds": round(each.seconds, 4)} for each in rates],
    }


def _latency(took: Sequence[int]) -> dict[str, Any]:
    ranked = sorted(took)
    return {
        "samples": len(ranked),
        **{name: _ms(percentile(ranked, share)) for name, share in _PERCENTILES.items()},
        "max": _ms(ranked[-1]),
    }


def percentile(ranked: Sequence[int], share: float) -> int:
    """The value below which `share` of the sorted values lie (nearest rank)."""
    return ranked[min(len(ranked) - 1, int(len(ranked) * share))]


def _ms(nanoseconds: int) -> float:
    return round(nanoseconds / 1_000_000, 4)


def _ratios(found: Found, latency: Mapping[str, Mapping[str, Any]]) -> dict[str, float] | None:
    if "direct" not in found.rates:
        return None
    pairs = zip(found.rates["node"], found.rates["direct"], strict=True)
    ratios = {"records_per_second": round(median(node.per_second / direct.per_second for node, direct in pairs), 3)}
    if latency:
        ratios |= {name: round(latency["node"][name] / latency["direct"][name], 3) for name in _PERCENTILES}
    return ratios


def as_text(data: Mapping[str, Any]) -> str:
    """A row for each figure, a column for each target."""
    names = list(data["targets"])
    ratios: Mapping[str, float] = data["ratio"] or {}
    throughput, latency = data["throughput"], data["latency_ms"]
    rows: list[list[object]] = [
        ["records/s", *(f"{throughput[name]['records_per_second']:,.0f}" for name in names)],
        ["MB/s", *(f"{throughput[name]['megabytes_per_second']:,.1f}" for name in names)],
    ]
    keys = ["records_per_second", "records_per_second"]
    if latency:
        for key in (*_PERCENTILES, "max"):
            rows.append([f"{key.replace('_', '.')} ms", *(f"{latency[name][key]:,.3f}" for name in names)])
            keys.append(key)
    if ratios:
        for row, key in zip(rows, keys, strict=True):
            row.append(f"{ratios[key]:.2f}" if key in ratios else "")
    columns = ["", *("straight to Kafka" if name == "direct" else "through the node" for name in names)]
    return table([*columns, "ratio"] if ratios else columns, rows)


DIRECT: Final = "direct"
NODE: Final = "node"
_WARM_SHARE: Final = 10
"""The warm-up round is shorter by this factor, and does not count."""


@examples(
    "sidecar bench",
    "sidecar bench --access exclusive --records 500000 --size 200 --compression lz4",
    "sidecar bench --clients 4 --partitions 12 -o json",
)
@click.command()
@click.option("--records", type=click.IntRange(1), default=100_000, show_default=True, help="Records of each round.")
@click.option("--size", type=click.IntRange(1, 1 << 20), default=1000, show_default=True, help="Bytes of a record.")
@click.option(
    "--batch-size", type=click.IntRange(1, 1 << 20), default=16_384, show_default=True, help="Bytes of a batch."
)
@click.option("--partitions", type=click.IntRange(1, 1000), default=3, show_default=True, help="Of the topics created.")
@click.option(
    "--replication-factor",
    type=click.IntRange(1, 100),
    help="Of the topics created.  [default: the brokers' default]",
)
@click.option("--acks", type=click.Choice(["1", "all"]), default="all", show_default=True, help="Of an ordinary topic.")
@click.option(
    "--compression",
    type=click.Choice([each.name.lower() for each in Codec]),
    default="none",
    show_default=True,
    help="Batches are compressed beforehand: the measurement does not include it.",
)
@click.option(
    "--access",
    type=click.Choice(["shared", "exclusive"]),
    help="Give the node's topic a policy, so that a governed topic is measured.  [default: an ordinary topic]",
)
@click.option("--clients", type=click.IntRange(1, 64), default=1, show_default=True, help="Producers at once.")
@click.option("--in-flight", type=click.IntRange(1, 5), default=5, show_default=True, help="Batches of each producer.")
@click.option("--rounds", type=click.IntRange(1, 100), default=5, show_default=True, help="The median of all counts.")
@click.option(
    "--round-trips",
    type=click.IntRange(0, 1_000_000),
    default=500,
    show_default=True,
    help="Single records in each round, one in flight, for latency.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(1, 3600),
    default=60.0,
    show_default=True,
    help="Time limit of a round; its records acknowledged until then count.",
)
@click.option("--no-direct", is_flag=True, help="Measure the node alone.")
@click.option(
    "--bootstrap",
    metavar="HOST:PORT,…",
    help="The node.  [default: what the node at --admin-url advertises, of several listeners the first PLAINTEXT one]",
)
@click.option("--kafka", metavar="HOST:PORT,…", help="Kafka itself.  [default: SIDECAR_BOOTSTRAP_SERVERS]")
@click.option(
    "--client-config",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    metavar="FILE",
    help="TLS and login at the node: lines as security.protocol=SASL_SSL, in the names of librdkafka."
    "  [default: the node's protocol, with what SIDECAR_KAFKA_… says]",
)
@asks_a_node
def bench(
    shared: Shared,
    bootstrap: str | None,
    kafka: str | None,
    client_config: Path | None,
    no_direct: bool,
    **said: Any,
) -> None:
    """Measure how many records a second a producer appends through a node, and how long one takes, beside the same
    straight to Kafka.

    Rounds take turns, after one that does not count. The client builds batches beforehand and is none of yours:
    figures are the servers'. Topics of its own (sidecar-bench-…) are deleted in the end, also on Ctrl-C; an owned one
    leaves its last generation in the nodes' changelog. Records stay in Kafka until then: rounds x records x size, at
    each target. Nothing else should run on the machines meanwhile.

    At a Kafka with TLS and logins the settings SIDECAR_KAFKA_… count, as for a node. A login is not renewed: where
    sessions end sooner than the measurement, it ends with them.

    Exit code 5 where the node, or Kafka without --no-direct, cannot be reached from here.
    """
    if said["access"] == "exclusive" and said["clients"] > said["partitions"]:
        raise CommandError(
            "a partition of a governed topic has one owner: say at most --partitions --clients", Exit.USAGE
        )
    api = shared.api()
    targets = {NODE: _node(api, bootstrap)}
    settings = settings_here(shared.config, None if kafka else partial(click.echo, err=True))
    if not no_direct:
        targets = {DIRECT: settings.bootstrap_servers if kafka is None else _addresses("--kafka", kafka)} | targets
    with failures_in_a_sentence():
        direct = of_settings(settings)
        at_node = _as_the_node(api, direct) if client_config is None else of_file(client_config)
        securities = {DIRECT: Security.of(direct), NODE: Security.of(at_node)}
    _check(targets, securities)
    with handled_by(signal.default_int_handler, ENDING):  # in this block Ctrl-C still deletes the topics
        found = _measure(targets, securities, api, said)
    data = as_data(found, {name: [f"{host}:{port}" for host, port in each] for name, each in targets.items()}, said)
    write(data, shared.output, lambda: as_text(data))


def _measure(
    targets: Mapping[str, Sequence[tuple[str, int]]],
    securities: Mapping[str, Security],
    api: AdminApi,
    said: Mapping[str, Any],
) -> Found:
    acks = -1 if said["acks"] == "all" else 1
    codec = Codec[said["compression"].upper()]
    load = Load(said["size"], said["batch_size"], acks, codec, said["in_flight"], said["seconds"])
    found = Found({name: [] for name in targets}, {name: [] for name in targets})
    with Stage(targets, api, securities) as stage, ExitStack() as open_clients, Rounds(said["rounds"]) as progress:
        try:
            writers: dict[str, Clients] = {}
            for name in targets:
                progress.doing(f"creating {stage.topics[name]}")
                leaders = stage.create(name, said["partitions"], said["replication_factor"] or -1)
                if name == NODE and said["access"]:
                    scope = "partition" if said["access"] == "exclusive" and said["clients"] > 1 else "topic"
                    stage.govern(name, {"access_mode": said["access"], "scope": scope})
                opened = Clients(stage.topics[name], leaders, load, said["clients"], securities[name])
                writers[name] = open_clients.enter_context(opened)
            for number in range(said["rounds"] + 1):
                progress.doing("warming up" if number == 0 else f"round {number} of {said['rounds']}")
                _round(number, writers, said, found)
                if number:
                    progress.done(found.last())
        except RefusedError as error:
            raise _refused(error) from None
        except OSError as error:
            raise CommandError(f"the connection was lost: {error or type(error).__name__}", Exit.UNREACHABLE) from None
    return found


def _round(number: int, clients: Mapping[str, Clients], said: Mapping[str, Any], found: Found) -> None:
    """Run a round; number 0 warms up. The target that begins changes from round to round."""
    records = said["records"] if number else max(1, said["records"] // _WARM_SHARE)
    for name in list(clients)[:: 1 if number % 2 else -1]:
        rate = clients[name].append(records)
        if number:
            found.rates[name].append(rate)
    if number and said["round_trips"]:
        for name, took in alternate(clients, said["round_trips"]).items():
            found.round_trips[name] += took


def _node(api: AdminApi, bootstrap: str | None) -> Sequence[tuple[str, int]]:
    status = api.get("/v1/status")  # always requested: a node has to be there, and it sets policies
    plain = (each["advertise"] for each in status["listeners"] if each["security_protocol"] == "PLAINTEXT")
    return _addresses("--bootstrap", bootstrap or next(plain, str(status["advertise"])))


def _as_the_node(api: AdminApi, direct: Mapping[str, str]) -> dict[str, str]:
    """How clients connect to the node: with its own protocol, and with the certificates and the login of `direct`."""
    settings = {each["setting"]: each["value"] for each in api.get("/v1/settings")["items"]}
    protocol = str(settings.get("SIDECAR_SECURITY_PROTOCOL") or "PLAINTEXT")
    kinds = [kind for kind, has in (("ssl.", protocol.endswith("SSL")), ("sasl.", protocol.startswith("SASL"))) if has]
    return {PROTOCOL: protocol} | {name: value for name, value in direct.items() if name.startswith(tuple(kinds))}


def _addresses(option: str, text: str) -> Sequence[tuple[str, int]]:
    try:
        return addresses(text)
    except ValueError as error:
        raise CommandError(f"{option} {text}: {error}", Exit.USAGE) from None


def _check(targets: Mapping[str, Sequence[tuple[str, int]]], securities: Mapping[str, Security]) -> None:
    """Check that every target answers, that all are the same Kafka, and that the direct one is no node."""
    found = {}
    for name, where in targets.items():
        try:
            found[name] = describe(where, security=securities[name])
        except OSError as error:
            text = ",".join(f"{host}:{port}" for host, port in where)
            raise CommandError(
                _UNREACHABLE[name].format(text, error or type(error).__name__), Exit.UNREACHABLE
            ) from None
    if DIRECT not in found:
        return
    node, direct = found[NODE], found[DIRECT]
    if node.cluster_id != direct.cluster_id:
        raise CommandError(
            f"the node belongs to the Kafka cluster {node.cluster_id}, and --kafka to {direct.cluster_id}", Exit.USAGE
        )
    if set(node.brokers.values()) & set(direct.brokers.values()):
        raise CommandError("--kafka names a node: name a broker, or leave it out by --no-direct", Exit.USAGE)


_UNREACHABLE: Final = {
    NODE: "the node cannot be reached from here at {} ({}): name an address of it that can, with --bootstrap",
    DIRECT: "Kafka cannot be reached from here at {} ({}): name an address of it that can, with --kafka, or measure the"
    " node alone with --no-direct",
}


def _refused(error: RefusedError) -> CommandError:
    return CommandError(f"{error} ({error_name(error.code)}); the measurement did not finish")
