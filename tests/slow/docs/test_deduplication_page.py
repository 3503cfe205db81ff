"""`docs/use/deduplication.md` as a newcomer runs it: the producer of the page, twice, then what the node tells."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.conftest import Unique
from tests.logs import read_log
from tests.nodes import NodeProcess
from tests.services import Services
from tests.slow.docs.test_unserved import ask

PAGE = Path(__file__).resolve().parents[3] / "docs" / "use" / "deduplication.md"


def program_of(kind: str, node: NodeProcess, topic: str) -> str:
    (program,) = re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return program.replace("127.0.0.1:19092", node.bootstrap).replace('"ledger"', repr(topic))


def test_the_producer_of_the_page_writes_its_records_once(
    services: Services, node: NodeProcess, unique: Unique
) -> None:
    topic = unique("dedup")
    (command,) = re.findall(r"```sh\n\.venv/bin/sidecar (.*?)#", PAGE.read_text(), re.DOTALL)
    sidecar = [Path(sys.executable).with_name("sidecar"), "--admin-url", node.admin_url]
    subprocess.run([*sidecar, *command.replace("ledger", topic).split()], check=True, timeout=60)
    program = program_of("python", node, topic)
    for _ in range(2):
        subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert read_log(services.kafka_bootstrap, topic) == [b"first", b"second", b"third"]
    status, told = ask(node, "GET", f"/v1/topics/{topic}/dedup/billing")
    assert (status, told["last_sequence_id"]) == (200, 2)
    block = program_of("py", node, topic).replace("\n", "\n    ")
    imports = "import asyncio\nfrom sidecar.client import ExclusiveProducer\n"
    program = f"{imports}async def main():\n    {block}\n    print(receipt)\nasyncio.run(main())"
    told = subprocess.run([sys.executable, "-c", program], check=True, timeout=60, capture_output=True, text=True)
    assert "sequence_id=3, duplicate=False" in told.stdout
    assert read_log(services.kafka_bootstrap, topic)[3:] == [b"fourth"]
