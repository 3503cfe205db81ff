"""`docs/deduplication.md` as a newcomer runs it: the producer of the page, twice, then what the node tells."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore[reportPrivateImportUsage]

from tests.conftest import Unique
from tests.integration.docs.test_unserved import ask
from tests.logs import read_log
from tests.nodes import NodeProcess
from tests.services import Services
from tests.wait import wait_for

PAGE = Path(__file__).resolve().parents[3] / "docs" / "deduplication.md"


def test_the_producer_of_the_page_writes_its_records_once(
    services: Services, node: NodeProcess, unique: Unique
) -> None:
    topic = unique("dedup")
    admin = AdminClient({"bootstrap.servers": services.kafka_bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)
    policy = {"access_mode": "exclusive", "deduplication": True}
    wait_for(lambda: ask(node, "PUT", f"/v1/topics/{topic}/policy", policy)[0] == 200, "the policy")
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    program = program.replace("127.0.0.1:19092", node.bootstrap).replace('"ledger"', repr(topic))
    for _ in range(2):
        subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert read_log(services.kafka_bootstrap, topic) == [b"first", b"second", b"third"]
    status, told = ask(node, "GET", f"/v1/topics/{topic}/dedup/billing")
    assert (status, told["last_sequence_id"]) == (200, 2)
