"""Code blocks of the pages that say so are run, against a node, and print what their comments say."""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient

from tests.nodes import NodeProcess
from tests.services import Services
from tests.unit.docs.pages import ROOT, Block, page

pytestmark = pytest.mark.smoke

RUN = [block for block in page("README.md").blocks if block.comment == "runs"]
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
    assert (done.stdout.splitlines(), done.stderr) == (wanted, "")


PASTED = [block for block in page("docs/use/clients.md").blocks if "def make_producer" in block.text]
CALLS = {
    False: """
producer = make_producer("{bootstrap}", "billing")
print(send(producer, "{topic}", "0"), send(producer, "{topic}", "1"))
""",
    True: """
import asyncio

async def main():
    producer = make_producer("{bootstrap}", "billing")
    await producer.start()
    print(await send(producer, "{topic}", "0"), await send(producer, "{topic}", "1"))
    await producer.stop()

asyncio.run(main())
""",
}
"""What the page says to call: of a block whose `send` is a coroutine, and of the others."""


@pytest.mark.parametrize("block", PASTED, ids=lambda block: block.text.split()[1])
def test_a_block_of_the_page_on_clients_runs_as_it_stands(block: Block, node: NodeProcess, orders: str) -> None:
    call = CALLS["async def send" in block.text].format(bootstrap=node.bootstrap, topic=orders)
    done = subprocess.run(
        [sys.executable, "-c", block.text + call], capture_output=True, text=True, check=False, timeout=_PATIENCE
    )
    assert done.stdout.splitlines() == ["ok ok"], done.stderr


def test_the_page_on_clients_has_a_block_for_each_library_of_python() -> None:
    assert [block.text.split()[1] for block in PASTED] == ["confluent_kafka", "aiokafka", "kafka"]
