"""The program that reads a node's settings again, as a separate process: the code that reads them is large, and has no
place in a node. On standard input the node's settings (`loaded.LoadedSettings`), on standard output either what it
would be now, or all that is wrong.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> int:
    """Read, resolve, answer; 0 also where the settings are wrong."""
    root = str(Path(__file__).resolve().parents[2])
    if root not in sys.path:  # run from a directory of sources that is not installed
        sys.path.append(root)
    from sidecar.settings import SettingsError, resolve  # noqa: PLC0415 - the path has to be right first
    from sidecar.settings.loaded import LoadedSettings  # noqa: PLC0415

    loaded = LoadedSettings.from_json(sys.stdin.read())
    try:
        found = resolve(loaded.flags, None if loaded.config is None else Path(loaded.config))
    except SettingsError as error:
        answer = {"problems": [str(problem) for problem in error.problems]}
    else:
        answer = {"settings": (found.for_worker(loaded.worker) if loaded.worker else found).to_json()}
    sys.stdout.write(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
