"""The examples in the SDK's docstrings run as they stand, but for the address and the topic."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import sidecar.client
from sidecar.client import ExclusiveProducer
from tests.integration.client.conftest import Topic
from tests.integration.exclusive.conftest import Rest
from tests.logs import read_log
from tests.nodes import NodeProcess
from tests.services import Services


def example(docstring: str | None) -> str:
    assert docstring is not None
    return textwrap.dedent(docstring.split("```python\n")[1].split("```")[0])


def test_examples_run(services: Services, node: NodeProcess, rest: Rest, new_topic: Topic) -> None:
    topic = new_topic(rest, deduplication=True)

    def run(docstring: str | None) -> str:
        program = example(docstring).replace("localhost:19092", node.bootstrap).replace('"orders"', f'"{topic}"')
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return done.stdout

    assert run(ExclusiveProducer.__doc__).count("Receipt(") == 3
    assert run(ExclusiveProducer.__doc__) == ""  # all three are there
    assert run(ExclusiveProducer.lost.__doc__) == ""
    assert "sequence_id=3" in run(sidecar.client.__doc__)
    assert read_log(services.kafka_bootstrap, topic) == [b"first", b"second", b"third", b"paid"]
