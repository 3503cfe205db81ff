"""The jars of an Apache Kafka broker and its tools, from Maven Central into the local Maven repository.

For the versions in `locks/` the list is known: coordinates and SHA-256. No dependency has to be computed and no unknown
code is run. For any other version jgo resolves the list from its POMs. The result is stored in the cache directory, so
a later start only checks 93 file sizes: no network, no jgo.
"""

import fcntl
import hashlib
import json
import os
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sidecar.local.errors import ResolveError
from sidecar.local.progress import Listener, Step, silent

if TYPE_CHECKING:
    from jgo.maven import Artifact, MavenContext

DEFAULT_VERSION = "4.1.1"
LOCKS = Path(__file__).with_name("locks")

_ATTEMPTS = 4
_PARALLEL = 8
_HTTP_TIMEOUT = 30  # seconds without a byte


@dataclass(frozen=True, slots=True)
class Jars:
    """The class path of one Kafka version."""

    version: str
    paths: tuple[Path, ...]

    @property
    def class_path(self) -> str:
        """The class path for `java -cp`. Order matters: archives of loaded classes are valid for one order only."""
        return os.pathsep.join(map(str, self.paths))

    @property
    def argument(self) -> str:
        """`@FILE` in place of `-cp` and 10 KB of paths on a command line of java, which stays readable in `ps`."""
        quoted = self.class_path.replace("\\", "\\\\").replace('"', '\\"')
        content = f'-cp "{quoted}"\n'
        file = cache_directory() / f"kafka-{self.version}.{hashlib.sha256(content.encode()).hexdigest()[:16]}.args"
        if not file.exists():
            _write(file, content)
        return f"@{file}"


@dataclass(frozen=True, slots=True)
class Locked:
    """One line of a lock: a coordinate `group:artifact:version` and the SHA-256 of its jar."""

    coordinate: str
    sha256: str


def cache_directory() -> Path:
    """The directory for lists of jars and class archives: `kafka-sidecar` under XDG_CACHE_HOME or ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "kafka-sidecar"


def resolve(version: str = DEFAULT_VERSION, progress: Listener = silent) -> Jars:
    """The jars of Kafka `version`; missing ones are downloaded first.

    Raises ResolveError if they cannot be downloaded or differ from their lock.
    """
    listing = cache_directory() / f"kafka-{version}.json"
    known = _read_listing(listing)
    if known is None:
        with _only_one(listing.with_name("lock")):
            known = _read_listing(listing)  # another process may just have finished
            if known is None:
                known = _fetch(version, progress)
                _write_listing(listing, known)
    return Jars(version, tuple(known))


def read_lock(version: str) -> tuple[Locked, ...] | None:
    """The lock in this package, or None if there is none for `version`."""
    return _read_lock(f"kafka-{version}")


def resolve_lock(name: str) -> tuple[Path, ...]:
    """The jars of a lock other than a broker's (`pipeline`); missing ones are downloaded first.

    Raises ResolveError if they cannot be downloaded or differ from their lock, ValueError if there is no such lock.
    """
    locked = _read_lock(name)
    if locked is None:
        raise ValueError(f"no lock {name}.txt in {LOCKS}")
    with _only_one(cache_directory() / "lock"), _talking_to_central(name):
        return tuple(_download_locked(locked, silent))


def _read_lock(name: str) -> tuple[Locked, ...] | None:
    path = LOCKS / f"{name}.txt"
    if not path.is_file():
        return None
    pairs = (line.split() for line in path.read_text().splitlines() if line and not line.startswith("#"))
    return tuple(Locked(coordinate, sha256) for coordinate, sha256 in pairs)


def write_lock(version: str) -> Path:
    """Resolve `version` from its POMs and write its lock. For maintainers: `python -m sidecar.local 4.1.1`."""
    with _talking_to_central(f"Kafka {version}"):
        artifacts = _dependencies(_context(), version)
        paths = _download(artifacts, {}, silent)
    _check_archives(paths)
    lines = [f"{_coordinate(artifact)} {_sha256(path)}" for artifact, path in zip(artifacts, paths, strict=True)]
    lock = LOCKS / f"kafka-{version}.txt"
    head = f"# The class path of Apache Kafka {version}: coordinate and SHA-256. `python -m sidecar.local {version}`"
    lock.write_text("\n".join([head, *lines, ""]))
    return lock


def _fetch(version: str, progress: Listener) -> list[Path]:
    locked = read_lock(version)
    with _talking_to_central(f"Kafka {version}"):
        if locked is None:
            progress(Step("jars", f"resolving the dependencies of Kafka {version}"))
            artifacts = _dependencies(_context(), version)
            paths = _download(artifacts, {}, progress)
            _check_archives(paths)
            return paths
        return _download_locked(locked, progress)


def _download_locked(locked: tuple[Locked, ...], progress: Listener) -> list[Path]:
    context = _context()
    artifacts = [context.create_dependency(entry.coordinate).artifact for entry in locked]
    return _download(artifacts, {entry.coordinate: entry.sha256 for entry in locked}, progress)


def _context() -> "MavenContext":
    """Maven Central, after the repositories in the user's own jgo configuration, where companies configure their
    mirrors.
    """
    from jgo.config import GlobalSettings  # noqa: PLC0415  an extra, slow to import, and not needed once all is here
    from jgo.constants import MAVEN_CENTRAL_URL  # noqa: PLC0415
    from jgo.maven import MavenContext  # noqa: PLC0415

    settings = GlobalSettings.load()
    repositories = {**settings.repositories, "central": settings.repositories.get("central", MAVEN_CENTRAL_URL)}
    return MavenContext(repo_cache=settings.repo_cache, remote_repos=repositories, timeout=_HTTP_TIMEOUT)


def _dependencies(context: "MavenContext", version: str) -> list["Artifact"]:
    """The broker, its tools and one way to log: to stderr. Kafka's own logging back ends would need a file each."""
    roots = [
        context.create_dependency(coordinate, [context.project("org.slf4j", "slf4j-reload4j")])
        for coordinate in (
            f"org.apache.kafka:kafka_2.13:{version}",
            f"org.apache.kafka:kafka-tools:{version}",
            "org.slf4j:slf4j-simple:1.7.36",
        )
    ]
    inputs, transitive = context.resolver.resolve(roots)
    return sorted((dependency.artifact for dependency in [*inputs, *transitive]), key=_coordinate)


def _coordinate(artifact: "Artifact") -> str:
    if artifact.classifier or artifact.packaging != "jar":
        raise ResolveError(f"{artifact} is not a plain jar: the form of a lock cannot name it")
    return f"{artifact.groupId}:{artifact.artifactId}:{artifact.version}"


def _download(artifacts: list["Artifact"], sha256: dict[str, str], progress: Listener) -> list[Path]:
    progress(Step("jars", "downloading Kafka", 0, len(artifacts)))
    with ThreadPoolExecutor(_PARALLEL) as pool:
        jobs = [pool.submit(_download_one, artifact, sha256.get(_coordinate(artifact))) for artifact in artifacts]
        try:
            for done, job in enumerate(as_completed(jobs), 1):
                job.result()
                progress(Step("jars", "downloading Kafka", done, len(artifacts)))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
        return [job.result() for job in jobs]


def _download_one(artifact: "Artifact", sha256: str | None) -> Path:
    """The path of a jar, downloaded if missing. jgo writes in place: the hash reveals an interrupted download."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            path = artifact.resolve()
        except (OSError, RuntimeError):  # requests' errors are OSErrors
            if artifact.cached_path is not None:
                artifact.cached_path.unlink(missing_ok=True)
            if attempt == _ATTEMPTS:
                raise
            continue
        if sha256 is None or _sha256(path) == sha256:
            return path
        path.unlink()
    raise ResolveError(f"{artifact} is not the file it was when its lock was written: SHA-256 differs")


def _check_archives(paths: list[Path]) -> None:
    for path in paths:
        try:
            with zipfile.ZipFile(path) as archive:
                damaged = archive.testzip()
        except zipfile.BadZipFile:
            damaged = "its directory"
        if damaged is not None:
            path.unlink()
            raise ResolveError(f"{path} was damaged ({damaged}) and has been removed: try again")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_listing(listing: Path) -> list[Path] | None:
    """The jars noted in `listing`; None unless each of them exists with its size."""
    try:
        noted: dict[str, int] = json.loads(listing.read_text())
        if all(Path(path).stat().st_size == size for path, size in noted.items()):
            return [Path(path) for path in noted]
    except (OSError, ValueError):
        pass
    return None


def _write_listing(listing: Path, paths: list[Path]) -> None:
    _write(listing, json.dumps({str(path): path.stat().st_size for path in paths}, indent=1))


def _write(path: Path, content: str) -> None:
    """Write a file whole or not at all: other processes may be reading it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(content)
    draft.replace(path)


@contextmanager
def _only_one(lock: Path) -> Iterator[None]:
    """Lets one process in at a time: jgo refuses to write a file that another process has begun."""
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("w")
    except OSError as error:
        raise ResolveError(
            f"{lock.parent} cannot hold the list of Kafka's jars ({error.strerror}): name a directory that you may "
            "write to with XDG_CACHE_HOME"
        ) from None
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _talking_to_central(wanted: str) -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError) as error:
        raise ResolveError(
            f"{wanted} could not be brought from Maven Central: {error}\n"
            "It is needed once; afterwards no network is. "
            "A proxy is taken from HTTPS_PROXY, its certificate authority from REQUESTS_CA_BUNDLE, a mirror from jgo's "
            "configuration."
        ) from error
