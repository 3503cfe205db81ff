"""The tree of commands. Each is imported when it is used; only their names are listed here."""

from __future__ import annotations

from typing import Final

import rich_click as click

from sidecar import __version__
from sidecar.cli.group import LazyGroup, Place
from sidecar.cli.options import admin_url_option, config_option, output_option

_COMMANDS: Final = {
    "up": Place("sidecar.cli.up:up", "Start Kafka, Valkey and a node here; Ctrl-C stops them."),
    "demo": Place("sidecar.cli.demo:demo", "Two competing producers, a fence, and a late batch that Kafka refuses."),
    "serve": Place("sidecar.cli.serve:serve", "Run a node in front of your Kafka."),
    "status": Place("sidecar.cli.status:status", "Show a node, its cluster and all governed topics."),
    "refusals": Place("sidecar.cli.refusals:refusals", "Show what clients were refused lately, and why."),
    "doctor": Place("sidecar.cli.doctor:doctor", "Check Kafka, Redis, the node and the machine; suggest remedies."),
    "healthcheck": Place("sidecar.cli.healthcheck:healthcheck", "Exit with 0 if the node is ready, else with 10."),
    "check-config": Place("sidecar.cli.config:check_config", "Check the settings and exit."),
    "config": Place("sidecar.cli.config:config", "Show the settings and where each comes from; print the JSON schema."),
    "topic": Place("sidecar.cli.topic:topic", "List, show, create and delete topics; set and unset their policies."),
    "producer": Place("sidecar.cli.producer:producer", "List owners and queues; fence or release an owner."),
    "dedup": Place("sidecar.cli.dedup:dedup", "Show producer names and their sequence ids; forget one."),
    "shadow": Place("sidecar.cli.shadow:shadow", "Create, show, change and delete shadow topics."),
    "cursor": Place("sidecar.cli.cursor:cursor", "List and reset the cursors of shadow topics."),
    "pipeline": Place("sidecar.cli.pipeline:pipeline", "Prove, repair and export whole logs with Spark."),
    "bench": Place("sidecar.cli.bench.command:bench", "Measure a node against the Kafka behind it."),
    "completion": Place("sidecar.cli.completion:completion", "Print a completion script for a shell."),
}


@click.group(cls=LazyGroup, places=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sidecar")
@config_option
@admin_url_option
@output_option
def cli() -> None:
    """Exclusive producers and deduplication for plain Apache Kafka and unmodified clients.

    Kafka clients connect to the sidecar instead of Kafka, unchanged. `sidecar up` starts one with a Kafka and a Redis
    of its own; `sidecar serve` runs one in front of yours.

    Exit codes: 0 ok, 1 failure, 2 usage, 3 not found, 4 conflict or fenced, 5 unreachable, 10 unhealthy.
    """
