"""Every example in a docstring of the SDK runs as it stands, but for addresses and names."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import sidecar.client
import sidecar.client.sync
from sidecar.client import ExclusiveProducer, sync
from tests.conftest import Unique
from tests.kafka.client.conftest import Topic
from tests.logs import read_log
from tests.nodes import NodeProcess
from tests.rest import Rest
from tests.services import Services

Run = Callable[[str], str]
_EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)


def example(docstring: str | None) -> str:
    """The first one."""
    return textwrap.dedent(_EXAMPLE.findall(docstring or "")[0])


def examples() -> dict[str, str]:
    """By where it stands: of modules, of what they export, of its methods and properties."""
    return {
        f"{name}-{number}": textwrap.dedent(text)
        for name, docstring in docstrings()
        for number, text in enumerate(_EXAMPLE.findall(docstring))
    }


def docstrings() -> Iterator[tuple[str, str]]:
    for module in (sidecar.client, sidecar.client.sync):
        yield module.__name__, module.__doc__ or ""
        for name in module.__all__:
            found: Any = getattr(module, name)
            if inspect.isclass(found):
                yield f"{module.__name__}.{name}", found.__doc__ or ""
                for inner, member in vars(found).items():
                    yield f"{module.__name__}.{name}.{inner}", getattr(member, "__doc__", None) or ""


EXAMPLES = examples()


@pytest.fixture
def names(rest: Rest, node: NodeProcess, new_topic: Topic, unique: Unique) -> dict[str, str]:
    """What stands in examples, and what is there instead: a topic with a shadow and a record in it."""
    topic, shadow = new_topic(rest, deduplication=True), unique("audit")
    status, _ = rest.call("POST", f"/v1/topics/{topic}/shadows", {"name": shadow, "allow": ["User:*"]})
    assert status == 201
    with sync.ExclusiveProducer(node.bootstrap, topic=topic, name="before") as producer:
        producer.send(b"before")
    return {
        "localhost:19092": node.bootstrap,
        "http://127.0.0.1:18080": node.admin_url,
        '"orders-audit"': f'"{shadow}"',
        '"orders"': f'"{topic}"',
        '"scheduler"': f'"{unique("scheduler")}"',
    }


@pytest.fixture
def run(names: dict[str, str], capsys: pytest.CaptureFixture[str]) -> Run:
    def run(program: str) -> str:
        for shown, there in names.items():
            program = program.replace(shown, there)
        exec(compile(program, "example", "exec"), {"__name__": "__main__"})
        told, errors = capsys.readouterr()
        assert errors == "", program
        return told

    return run


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(run: Run, name: str) -> None:
    told = run(EXAMPLES[name])
    assert told or name.endswith(("ExclusiveProducer.lost-0",))


def test_every_class_shows_how_it_is_used() -> None:
    with_example = {name.rpartition("-")[0] for name in EXAMPLES}
    for module in (sidecar.client, sidecar.client.sync):
        for name in ("AdminClient", "ExclusiveProducer", "Leadership", "ShadowReader"):
            assert f"{module.__name__}.{name}" in with_example
        assert module.__name__ in with_example


def test_addresses_in_examples_are_those_that_are_replaced() -> None:
    for name, text in EXAMPLES.items():
        hosts = re.findall(r"[\w.]+:\d{4,5}", text)
        assert set(hosts) <= {"localhost:19092", "127.0.0.1:18080"}, name


def test_an_example_that_resumes_writes_nothing_twice(services: Services, run: Run, names: dict[str, str]) -> None:
    program = example(ExclusiveProducer.__doc__)
    assert run(program).count("Receipt(") == 3
    assert run(program) == ""  # all three are there
    assert "sequence_id=3" in run(example(sidecar.client.__doc__))
    topic = names['"orders"'].strip('"')
    assert read_log(services.kafka_bootstrap, topic) == [b"before", b"first", b"second", b"third", b"paid"]
