"""`sidecar demo` tells its story on a real Kafka; it fails by itself where a step turns out otherwise."""

import os
import re
import subprocess
import sys
from itertools import groupby
from pathlib import Path

from sidecar.local.ports import HOST
from sidecar.local.probe import ask_kafka
from tests.unit.docs.pages import page

DEMO = [sys.executable, "-m", "sidecar", "demo"]


def check(told: str) -> None:
    assert "beta, is refused: 44" in told
    assert "refused by Kafka itself, 47" in told
    log = re.findall(r"^ +\d+  (fence|generation \d+  \w+)", told, re.MULTILINE)
    found = [(what, len(list(lines))) for what, lines in groupby(log)]
    assert [what for what, _ in found] == ["fence", "generation 1  alpha", "fence", "generation 2  beta"]
    assert all(count >= 10 for _, count in found[1::2]), "each wrote ten records, and went on until it was killed"


def test_the_demo_shows_a_refusal_a_takeover_and_kafkas_own_refusal_of_a_late_batch() -> None:
    demo = subprocess.run(DEMO, capture_output=True, text=True, timeout=120, check=False)
    assert demo.returncode == 0, demo.stderr
    check(demo.stdout)
    [shown] = [block.text for block in page("README.md").blocks if block.comment == "demo"]
    story = re.findall(r"^\d\. .+$", shown, re.MULTILINE)
    assert len(story) == 6
    assert set(story) <= set(demo.stdout.splitlines()), "README shows what it prints"


def test_the_same_with_logins_lets_nobody_in_without_one_and_leaves_nothing_behind(tmp_path: Path) -> None:
    (temporary := tmp_path / "temporary").mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary), "SIDECAR_STATE_DIR": str(tmp_path / "state")}
    with subprocess.Popen(
        [*DEMO, "--secure"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as demo:
        try:
            assert demo.stdout is not None
            addresses = demo.stdout.readline()
            ports = [int(port) for port in re.findall(rf"(?<!rediss://){HOST}:(\d+)", addresses)]
            refused = [ask_kafka(HOST, port) for port in ports]
            secrets = [path.read_text() for path in temporary.glob("sidecar-demo-*/secured/*.password")]
            told, errors = demo.communicate(timeout=120)
        finally:
            demo.kill()
    assert demo.returncode == 0, errors
    check(told)
    assert refused == [None, None], addresses
    assert len(secrets) == 4
    assert [each for each in secrets if each in told + errors] == []
    assert list(temporary.iterdir()) == []
    assert not (tmp_path / "state").exists()
