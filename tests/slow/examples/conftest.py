"""A node for the examples, as `make up` runs one, and topics under the policy that their page tells to set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportPrivateImportUsage]

from tests.conftest import Unique
from tests.programs import stop_all
from tests.rest import Rest
from tests.services import Services
from tests.slow.examples.programs import Logs, Program

Topic = Callable[..., str]


@pytest.fixture
def topic(rest: Rest, services: Services, unique: Unique) -> Iterator[Topic]:
    """`topic("stock")`: a name under the policy; the program creates the topic. More of it: `scope="partition"`."""
    names: list[str] = []

    def name(word: str, **policy: object) -> str:
        found = unique(f"example-{word}")
        policy = {"access_mode": "exclusive", "deduplication": True, **policy}
        status, answer = rest.call("PUT", f"/v1/topics/{found}*/policy", policy)
        assert status == 200, answer
        names.append(found)
        return found

    yield name
    admin = AdminClient({"bootstrap.servers": services.kafka_bootstrap, "log_level": 0})
    for future in (admin.delete_topics(names) if names else {}).values():
        future.exception(20)


@pytest.fixture
def logs(services: Services) -> Iterator[Logs]:
    found = Logs(services.kafka_bootstrap)
    yield found
    found.close()


Start = Callable[..., Program]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """`start("job_scheduler", "run", …)`: an example as a process in the test's own directory."""
    started: list[Program] = []

    def run(name: str, *arguments: str) -> Program:
        started.append(Program(name, tmp_path, arguments))
        return started[-1]

    yield run
    stop_all([program.child for program in started], grace=10)
    for program in started:
        assert "Traceback" not in program.output, program.output
