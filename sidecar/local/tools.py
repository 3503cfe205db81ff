"""Running Kafka's own command line tools (org.apache.kafka.tools.*) from the broker's jars."""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from sidecar.local.class_archive import ClassArchive
from sidecar.local.jars import Jars, resolve
from sidecar.local.java import Java, Tuning, find_java
from sidecar.local.kafka_config import default_version
from sidecar.local.progress import Listener, silent

_LOGGING = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.logFile=System.err")


def find_tools(version: str | None = None, progress: Listener = silent) -> "Tools":
    """The tools of a Kafka version (SIDECAR_LOCAL_KAFKA_VERSION, else the default), downloaded if missing.

    Raises LocalError if there is no Java, or if a download is needed and there is no network.
    """
    return Tools(find_java(), resolve(version or default_version(), progress))


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools of one Kafka version on one Java runtime."""

    java: Java
    jars: Jars

    def command(
        self, main_class: str, *arguments: str, heap_mb: int = 128, tuning: Tuning = Tuning.QUICK
    ) -> tuple[str, ...]:
        """The command line that runs `main_class`, for callers that supervise the process themselves."""
        flags = self.java.flags(heap_mb, tuning) + ClassArchive.of(self.java, self.jars).flags_to_use()
        return (str(self.java.path), *flags, *_LOGGING, self.jars.argument, main_class, *arguments)

    def run(
        self,
        main_class: str,
        *arguments: str,
        stdin: str = "",
        timeout: float = 60,
        check: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> "subprocess.CompletedProcess[str]":
        """Run it to its end, both outputs captured as text.

        Raises subprocess.CalledProcessError (whose text has both outputs) if it fails and `check` is set. After
        `timeout` seconds it is killed, and subprocess.TimeoutExpired is raised.
        """
        done = subprocess.run(
            self.command(main_class, *arguments),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            env=environment,
        )
        if check and done.returncode != 0:
            raise ToolError(main_class, done)
        return done


class ToolError(subprocess.CalledProcessError):
    """A tool ended with an exit code other than 0; shown with everything it wrote."""

    def __init__(self, main_class: str, done: "subprocess.CompletedProcess[str]") -> None:
        super().__init__(done.returncode, main_class, done.stdout, done.stderr)

    def __str__(self) -> str:
        return f"{self.cmd} ended with exit code {self.returncode}\n{self.stdout}{self.stderr}"
