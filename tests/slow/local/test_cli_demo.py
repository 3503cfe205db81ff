"""`sidecar demo` tells its story on a real Kafka; it fails by itself where a step turns out otherwise."""

import re
import subprocess
import sys

import pytest


@pytest.mark.smoke
def test_the_demo_shows_a_refusal_a_takeover_and_kafkas_own_refusal_of_a_late_batch() -> None:
    demo = subprocess.run(
        [sys.executable, "-m", "sidecar", "demo"], capture_output=True, text=True, timeout=120, check=False
    )
    assert demo.returncode == 0, demo.stderr
    assert "beta, is refused: 44" in demo.stdout
    assert "refused by Kafka itself, 47" in demo.stdout
    log = re.findall(r"^ +\d+  (fence|generation \d+  \w+)", demo.stdout, re.MULTILINE)
    assert log == ["fence", *["generation 1  alpha"] * 10, "fence", *["generation 2  beta"] * 10]
