"""Compiles the Java part of the matrix with ECJ, Eclipse's compiler: a runtime without `javac` is enough.

The result is a jar in the cache directory, named after what it was made from; nothing is written beside the sources.
"""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
import tempfile
import zipfile
from pathlib import Path

from sidecar.local.jars import Jars, cache_directory
from sidecar.local.java import Java, Tuning

SOURCES = Path(__file__).with_name("java")
COMPILER = "org.eclipse.jdt:ecj:3.39.0"
COMPILER_SHA256 = "01f5a92ac19bb2b3bf85e295a68f2c73c264369109158b566ce9b490af982948"
_ATTEMPTS = 3
_COMPILE_TIMEOUT_S = 120.0


def matrix_jar(java: Java, jars: Jars) -> Path:
    """The jar of everything in `java/`, compiled against `jars` unless that was done before.

    Raises:
        RuntimeError: the compiler could not be had, or did not like what it read; its output is in the message.
    """
    return compiled(java, jars, sorted(SOURCES.rglob("*.java")), "client-matrix")


def compiled(java: Java, jars: Jars, sources: list[Path], name: str) -> Path:
    """The jar of these sources, compiled against `jars` unless that was done before. Raises as `matrix_jar`."""
    made_of = hashlib.sha256(f"{COMPILER_SHA256}\n{jars.version}\n".encode())
    for source in sources:
        made_of.update(source.read_bytes())
    jar = cache_directory() / f"{name}-{made_of.hexdigest()[:16]}.jar"
    jar.parent.mkdir(parents=True, exist_ok=True)
    with (jar.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jar.exists():
            _compile(java, jars, sources, jar)
    return jar


def _compile(java: Java, jars: Jars, sources: list[Path], jar: Path) -> None:
    with tempfile.TemporaryDirectory(dir=jar.parent) as folder:
        classes = Path(folder) / "classes"
        flags = java.flags(256, Tuning.QUICK)
        options = ("-17", "-proc:none", "-encoding", "UTF-8", "-cp", jars.class_path, "-d", str(classes))
        command = [str(java.path), *flags, "-jar", str(_compiler()), *options, *map(str, sources)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_TIMEOUT_S, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{sources[0].parent} does not compile:\n{done.stdout}{done.stderr}")
        draft = Path(folder) / "classes.jar"
        with zipfile.ZipFile(draft, "w") as archive:
            for path in sorted(classes.rglob("*.class")):
                archive.write(path, path.relative_to(classes))
        draft.replace(jar)


def _compiler() -> Path:
    """The compiler's jar, downloaded once; checked each time it is used, which is when a source has changed."""
    import jgo  # noqa: PLC0415  slow to import, and needed only when a source has changed
    from jgo.config import GlobalSettings  # noqa: PLC0415

    last: Exception | None = None
    for _ in range(_ATTEMPTS):
        try:
            [artifact, *_] = jgo.resolve(COMPILER, GlobalSettings.load().repositories)
            path = artifact.resolve()
        except (OSError, RuntimeError) as error:  # requests' errors are OSErrors
            last = error
            continue
        if hashlib.sha256(path.read_bytes()).hexdigest() == COMPILER_SHA256:
            return path
        path.unlink()
        last = ValueError(f"{path.name} is not the file that was expected")
    raise RuntimeError(f"{COMPILER} could not be brought from Maven Central: {last}") from last
