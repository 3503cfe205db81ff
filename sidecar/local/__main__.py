"""For maintainers: `python -m sidecar.local 4.1.1 …` resolves Kafka versions from their POMs and writes their locks."""

import sys

from sidecar.local.jars import write_lock

for version in sys.argv[1:]:
    sys.stdout.write(f"{write_lock(version)}\n")
