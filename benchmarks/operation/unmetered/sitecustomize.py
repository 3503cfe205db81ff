"""Makes a node count nothing: the interpreter imports this at its start, by its name, where PYTHONPATH holds this
directory. The benchmarks start a node so to see what counting costs; nothing else ever does.

Every method of `NodeMetrics` that is told something becomes one that does nothing. What rooms do to have something to
tell, reading a clock above all, they go on doing.
"""

import os
from inspect import isfunction
from typing import Any


def _nothing(*_: Any, **__: Any) -> None:
    """Instead of counting."""


if "BENCH_UNMETERED" in os.environ:
    from sidecar.telemetry.hooks import NodeMetrics

    for _name, _method in list(vars(NodeMetrics).items()):
        if isfunction(_method) and _method.__annotations__.get("return") in {None, "None"} and _name[0] != "_":
            setattr(NodeMetrics, _name, _nothing)
