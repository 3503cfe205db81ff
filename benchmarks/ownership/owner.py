"""A process that owns a topic and writes to it until it is killed: `python -m benchmarks.ownership.owner PORT TOPIC`.

It prints a line once it owns the topic.
"""

from __future__ import annotations

import sys
import time

from benchmarks.ownership.writers import Writer

_BETWEEN_S = 0.002


def main(port: int, topic: str) -> None:
    """Own it and write; does not return."""
    with Writer(port, "owner;mode=wait_for_exclusive", topic) as writer:
        writer.write()
        print("owner", flush=True)
        while True:
            time.sleep(_BETWEEN_S)
            writer.write()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
