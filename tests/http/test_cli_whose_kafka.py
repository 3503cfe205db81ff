"""Commands that go to the Kafka and Redis of `sidecar up`, as nobody said which, say so on standard error."""

import json
import os
from pathlib import Path

import pytest

from sidecar.cli.pipeline.running import say
from sidecar.cli.setting_flags import settings_here
from sidecar.local.process import Identity
from tests.http.paper_cli import Running, run, unused_url

pytestmark = pytest.mark.usefixtures("nothing_set", "playground")

ORIGIN = "Kafka and Redis are those of `sidecar up`"
NOBODY = "127.0.0.1:9"


@pytest.fixture
def playground(nothing_set: None) -> None:
    """`sidecar up` runs, by what its run file tells; nobody answers where its Kafka should be."""
    state = Path(os.environ["SIDECAR_STATE_DIR"])
    state.mkdir()
    owner = {"pid": os.getpid(), "started": Identity.of(os.getpid()).started}
    endpoints = {"kafka": NOBODY, "redis": f"redis://{NOBODY}/0"}
    (state / "run.json").write_text(json.dumps({"owner": owner, "endpoints": endpoints, "parts": []}))


def test_a_pipeline_says_whose_kafka_and_redis_it_goes_to(capsys: pytest.CaptureFixture[str]) -> None:
    settings = settings_here(None, say, {"cluster": None})
    assert (",".join(map(str, settings.bootstrap_servers)), settings.redis_url) == (NOBODY, f"redis://{NOBODY}/0")
    assert capsys.readouterr() == ("", f"{ORIGIN}\n")


@pytest.mark.parametrize("given", ["bootstrap_servers", "redis_url"])
def test_where_one_of_them_is_named_nothing_is_said(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    named = {"bootstrap_servers": "kafka:9092", "redis_url": "redis://redis:6379/0"}[given]
    settings = settings_here(None, say, {given: named})
    assert NOBODY not in f"{settings.bootstrap_servers} {settings.redis_url}"
    assert capsys.readouterr() == ("", "")


def test_a_rebuild_says_it_before_it_begins() -> None:
    said = run("pipeline", "rebuild", "orders", "--until", "never")
    assert (said.code, said.out, said.err.splitlines()[0]) == (2, "", ORIGIN)


def test_a_benchmark_says_it_before_it_goes_there(running: Running) -> None:
    said = run("--admin-url", running.url, "bench")
    assert (said.code, said.out, said.err.splitlines()[0], NOBODY in said.err) == (5, "", ORIGIN, True)
    assert ORIGIN not in run("--admin-url", running.url, "bench", "--kafka", NOBODY).err


def test_the_doctor_says_it_with_the_settings() -> None:
    assert f"the settings are valid; {ORIGIN}" in run("--admin-url", unused_url(), "doctor").out


def test_the_doctor_looks_at_the_kafka_and_redis_of_the_node_that_answers(running: Running) -> None:
    said = run("--admin-url", running.url, "doctor").out
    assert "the settings are valid; Kafka and Redis are those of the node" in said
    assert ("cannot connect to 127.0.0.1:9092" in said, f"{NOBODY}:" in said) == (True, False)
