"""Code blocks of the pages that say so are run, against a node, and print what their comments say."""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import asyncio
import re
import shlex
import subprocess
import sys
import uuid
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.nodes import NodeProcess
from tests.services import Services
from tests.unit.docs.pages import ROOT, Block, page

RUN = [block for block in page("README.md").blocks if block.comment == "runs"]
RECIPES = [block for block in page("docs/reference/clients.md").blocks if block.language == "python"]
_PATIENCE = 60.0


def run(arguments: list[str], node: NodeProcess, services: Services) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": "/usr/bin:/bin",
        "SIDECAR_ADMIN_URL": node.admin_url,
        "SIDECAR_BOOTSTRAP_SERVERS": services.kafka_bootstrap,
        "SIDECAR_REDIS_URL": services.redis_url,
        "SIDECAR_CLUSTER": node.cluster,
    }
    return subprocess.run(
        arguments, capture_output=True, text=True, check=False, timeout=_PATIENCE, env=environment, cwd=ROOT
    )


@pytest.fixture
def orders(services: Services) -> Iterator[str]:
    """A name that the blocks use instead of `orders`, as other tests may have that one."""
    name = f"readme-{uuid.uuid4().hex[:8]}"
    yield name
    admin = AdminClient({"bootstrap.servers": services.kafka_bootstrap, "log_level": 0})
    for future in admin.delete_topics([name]).values():
        future.exception(_PATIENCE)


def shell(block: Block) -> list[str]:
    return [line.split("#")[0].strip() for line in block.text.splitlines() if line.split("#")[0].strip()]


def test_the_commands_and_the_program_of_the_readme_do_what_it_says(
    node: NodeProcess, services: Services, orders: str
) -> None:
    commands, program = RUN
    assert (commands.language, program.language) == ("sh", "python")
    for line in shell(commands):
        words = shlex.split(line.replace("orders", orders))
        assert words[0] == ".venv/bin/sidecar"
        done = run([sys.executable, "-m", "sidecar", *words[1:]], node, services)
        assert done.returncode == 0, done.stderr
    text = program.text.replace("127.0.0.1:19092", node.bootstrap).replace("orders", orders)
    wanted = re.findall(r"^write\(.*\)  # (.*)$", program.text, re.MULTILINE)
    done = run([sys.executable, "-c", text], node, services)
    assert len(wanted) == 4
    assert done.stdout.splitlines() == wanted, done.stderr


@pytest.mark.parametrize("block", RECIPES, ids=lambda block: re.findall(r"^from (\w+)", block.text, re.MULTILINE)[0])
async def test_a_producer_made_by_a_recipe_writes(block: Block, node: NodeProcess, orders: str) -> None:
    assert "127.0.0.1:19092" in block.text
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's own, when it is imported
        space: dict[str, Any] = {}
        exec(block.text.replace("127.0.0.1:19092", node.bootstrap), space)
    producer = space["producer"]
    if isinstance(producer, Producer):
        told: list[object] = []
        producer.produce(orders, b"x", on_delivery=lambda error, _: told.append(error))
        assert (producer.flush(_PATIENCE), told) == (0, [None])
    elif asyncio.iscoroutinefunction(producer.send):
        await producer.start()
        try:
            await producer.send_and_wait(orders, b"x")
        finally:
            await producer.stop()
    else:
        assert producer.send(orders, b"x").get(_PATIENCE).topic == orders
        producer.close()
