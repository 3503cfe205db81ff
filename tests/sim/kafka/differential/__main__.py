"""`make differential`: random programs against a real Kafka until the time is over, or of these seeds."""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from sidecar.local import Kafka, KafkaConfig
from sidecar.local.kafka_config import default_version
from tests.sim.kafka.differential.compare import OVERRIDES, Sides
from tests.sim.kafka.differential.generate import program
from tests.sim.kafka.trouble import RealTrouble

_LENGTH = 60


def _seeds(options: argparse.Namespace) -> Iterator[int]:
    if options.seeds:
        first, _, last = options.seeds.partition("-")
        yield from range(int(first), int(last or first) + 1)
        return
    ends = time.monotonic() + 60 * options.minutes
    seed = secrets.randbelow(1_000_000_000)
    while time.monotonic() < ends:
        yield seed
        seed += 1


def main() -> int:
    """The number of seeds with a difference, at most 1."""
    parser = argparse.ArgumentParser(prog="make differential")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seeds", default="", help="7, or 0-99, instead of new ones")
    parser.add_argument("--brokers", type=int, default=1, choices=(1, 3), help="three: with faults")
    parser.add_argument("--version", default=default_version(), help="of Kafka")
    parser.add_argument("--length", type=int, default=_LENGTH, help="steps in a program")
    parser.add_argument("--keep-going", action="store_true", help="play the other seeds after a difference, unshrunk")
    options = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as directory:
        config = KafkaConfig(version=options.version, brokers=options.brokers, overrides=OVERRIDES)
        with Kafka(Path(directory), config) as kafka:
            real = RealTrouble(kafka)
            sides = Sides(real, options.version, options.brokers)
            began = time.monotonic()
            for seed in _seeds(options):
                found = sides.play(program(seed, sides.release, options.brokers, options.length))
                if found is None:
                    continue
                wrong += 1
                print(found.brief if options.keep_going else sides.shrink(found), flush=True)
                if not options.keep_going:
                    break
            tally, took = sides.tally, time.monotonic() - began
            real.close()
    requests = ", ".join(f"{name} {count}" for name, count in tally.requests.most_common())
    codes = ", ".join(f"{code}: {count}" for code, count in sorted(tally.errors.items()))
    print(f"{tally.programs} programs, {tally.steps} steps in {took:.0f} s, {wrong} with a difference")
    print(f"requests: {requests}\nanswers by error code: {codes}")
    return min(1, wrong)


if __name__ == "__main__":
    sys.exit(main())
