"""The product's last release beside today's, in one process: some nodes of a history are of one, some of the other.

The release is not committed twice: it comes from the repository's own history, into `.cache`. Its packages are imported
under the names that they have, while today's are put aside, and then known to nobody but each other. It has protobuf
descriptors of its own, and Python in place of compiled code.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from contextlib import suppress
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from google.protobuf import descriptor_pool

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT: Final = Path(__file__).parents[2]
COMMIT: Final = "bc5340ff"
"""The release: the last commit before those of 2026-11-28."""
_TREE: Final = ROOT / ".cache" / "former" / COMMIT
_PACKAGES: Final = ("sidecar", "metadata")
_NEWER_SETTINGS: Final = frozenset({"client_quotas"})
_SETTINGS: Final[dict[tuple[tuple[str, Any], ...], Any]] = {}
_NAMES: Final = "sidecar@former"
"""Under which its modules stand in `sys.modules`."""


@cache
def missing() -> str:
    """Why the release cannot be had; empty where it can, and is in `.cache` then."""
    if (_TREE / "sidecar" / "node" / "node.py").exists():
        return ""
    packed = subprocess.run(("git", "archive", COMMIT, *_PACKAGES), cwd=ROOT, capture_output=True, check=False)
    if packed.returncode:
        reason = packed.stderr.decode(errors="replace").strip().splitlines()
        return f"this clone has no commit {COMMIT} (git: {reason[0] if reason else packed.returncode})"
    _TREE.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=_TREE.parent) as apart:  # several processes may do this at once
        whole = Path(apart) / COMMIT
        whole.mkdir()
        subprocess.run(("tar", "-x", "-C", str(whole)), input=packed.stdout, check=True)
        with suppress(OSError):  # another one was first
            whole.rename(_TREE)
    return ""


class _Finder:
    """Finds the packages in the release's tree."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] not in _PACKAGES:
            return None
        return PathFinder.find_spec(name, [str(_TREE)] if path is None else path, target)


@cache
def load() -> SimpleNamespace:
    """The release's modules that a world needs."""
    if reason := missing():
        raise RuntimeError(reason)
    today = _take_out()
    pool, default = descriptor_pool.DescriptorPool(), descriptor_pool.Default
    _copy_known(pool)
    sys.meta_path.insert(0, _Finder)  # type: ignore[arg-type]
    descriptor_pool.Default = lambda: pool
    try:
        found = {
            name: importlib.import_module(module)
            for name, module in (
                ("node", "sidecar.node.node"), ("settings", "sidecar.settings"), ("loaded", "sidecar.settings.loaded"),
                ("policies", "sidecar.exclusive.policies"), ("ownership", "metadata.ownership"),
                ("connecting", "sidecar.node.connecting"), ("turn", "sidecar.network.turn"),
                ("codecs", "sidecar.protocol.codecs"), ("shared", "sidecar.exclusive.shared"),
            )
        }  # fmt: skip
    finally:
        descriptor_pool.Default = default
        sys.meta_path.remove(_Finder)  # type: ignore[arg-type]
        former = _take_out()
        sys.modules.update(today)
    for name, module in former.items():
        sys.modules[f"{_NAMES}.{name}"] = module
    return SimpleNamespace(**found, Node=found["node"].Node)


def node(values: Mapping[str, Any]) -> Any:
    """A node of the release, with settings that it knows."""
    release = load()
    known = tuple(sorted((name, value) for name, value in values.items() if name not in _NEWER_SETTINGS))
    if known not in _SETTINGS:
        _SETTINGS[known] = release.settings.load(dict(known))
    return release.Node(release.loaded.LoadedSettings(_SETTINGS[known]))


def turn() -> Any:
    """What the release's nodes have to write at the end of a turn."""
    return load().turn.TURN


def policy(fields: Any) -> Any:
    """A policy as the release has it."""
    release = load()
    mode, scope = fields.access_mode, fields.scope
    return release.policies.PolicyFields(
        None if mode is None else release.ownership.AccessMode(mode.value),
        fields.deduplication,
        fields.exclusive_reader,
        None if scope is None else release.policies.Scope(scope.value),
    )


def environment(governed: Any) -> Any:
    """What the governed topics of a node share; in a node of the last release it is the same object."""
    return getattr(governed, "env", governed)


def named(governed: Any) -> dict[str, Any]:
    """The topics that have a state on a node, of this release or the last one."""
    found: dict[str, Any] = governed.topics.named if hasattr(governed, "topics") else governed._topics
    return found


def _take_out() -> dict[str, ModuleType]:
    names = [name for name in sys.modules if name.partition(".")[0] in _PACKAGES]
    return {name: sys.modules.pop(name) for name in names}


def _copy_known(pool: Any) -> None:
    """What protobuf itself brings."""
    from google.protobuf import descriptor_pb2  # noqa: PLC0415

    pool.AddSerializedFile(descriptor_pb2.DESCRIPTOR.serialized_pb)
