"""A Spark cluster of its own, out of the pip package: one master and workers of one core each, on loopback."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from sidecar.local.java import find_java_for_spark
from sidecar.local.ports import HOST, free_ports
from sidecar.local.process import Child, Command
from tests.wait import wait_for

EXECUTORS = ("spark.executor.memory=512m", "spark.executor.cores=1", "spark.cores.max=2")
"""What lets both workers have one executor."""
_PATIENCE_S = 60.0


@contextmanager
def standalone(directory: Path, workers: int = 2) -> Iterator[str]:
    """The cluster's address, once every worker has reported to its master."""
    home = Path(pyspark.__file__).parent
    port, page, *pages = free_ports(2 + workers)
    address = f"spark://{HOST}:{port}"
    environment = {
        "JAVA_HOME": str(find_java_for_spark().path.resolve().parents[1]),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": HOST,
        "PYSPARK_PYTHON": sys.executable,
    }

    def start(name: str, kind: str, *arguments: str) -> Child:
        program = (str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", "--host", HOST, *arguments)
        return Child.start(Command(name, program, directory / f"{name}.log", environment, directory))

    def alive() -> int:
        try:
            with urllib.request.urlopen(f"http://{HOST}:{page}/json/", timeout=5) as answer:
                return int(json.load(answer)["aliveworkers"])
        except (OSError, ValueError):  # it answers with a page of HTML before it is ready
            return 0

    with ExitStack() as running:
        master = start("master", "master.Master", "--port", str(port), "--webui-port", str(page))
        running.callback(master.stop, 20)
        wait_for(lambda: master.alive and f"{HOST}:{port}" in master.log_text(), "the master", _PATIENCE_S)
        for number, its_page in enumerate(pages):
            work = directory / f"work-{number}"
            worker = start(
                f"worker-{number}", "worker.Worker", "--webui-port", str(its_page), "--cores", "1", "--memory", "1g",
                "--work-dir", str(work), address,
            )  # fmt: skip
            running.callback(worker.stop, 20)
        wait_for(lambda: alive() == workers, f"{workers} workers", _PATIENCE_S)
        yield address
