"""Compiles `sidecar/protocol/_records.pyx` into wheels and editable installs; a custom build hook of hatchling.

Without Cython, a C compiler or Python's headers the build says so and goes on; the module is left out, and
`sidecar.protocol.records` falls back to its twin in Python. A source that Cython refuses fails the build. Compiler:
$CC, the one Python was built with, `cc`, `gcc` or `clang`, whichever is there first.

$WHEEL_PLATFORM, such as `musllinux_1_2_aarch64`, makes a wheel for another machine: $CC then compiles for it, and a
module that cannot be compiled fails the build. Python's headers stay those of the machine that builds: all machines of
tools/dist.py are little-endian with types of the same sizes, which `pyport.h` checks when it is compiled.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_SOURCE = Path("sidecar/protocol/_records.pyx")
_LIMIT_S = 300


class NotCompiledError(Exception):
    """Why there will be no compiled module."""


class CustomBuildHook(BuildHookInterface):
    """An editable install gets the module beside its source, a wheel gets it without a trace in the checkout."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        source = Path(self.root) / _SOURCE
        platform = os.environ.get("WHEEL_PLATFORM", "")
        name = source.stem + (_suffix(platform) or sysconfig.get_config_var("EXT_SUFFIX") or ".so")
        editable = version == "editable"
        if editable:
            (source.parent / name).unlink(missing_ok=True)  # never an old one beside a newer source
        self._directory = tempfile.TemporaryDirectory(prefix="sidecar-build-")
        try:
            module = _compile(source, Path(self._directory.name), name, platform)
        except NotCompiledError as reason:
            if platform:
                raise
            self.app.display_warning(f"{_SOURCE} is not compiled, its twin in Python does the work: {reason}")
            return
        if editable:
            shutil.copyfile(module, source.parent / name)
        else:
            build_data["force_include"][str(module)] = str(_SOURCE.with_name(name))
            build_data["pure_python"] = False
            build_data["infer_tag"] = not platform
            if platform:
                build_data["tag"] = f"{_python()}-{_python()}-{platform}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        self._directory.cleanup()


def _python() -> str:
    return f"cp{sys.version_info.major}{sys.version_info.minor}"


def _suffix(platform: str) -> str:
    """How a compiled module's name ends there, "" for the machine that builds."""
    if not platform:
        return ""
    kind, *_, machine = platform.split("_", 3)
    return f".{_python().replace('cp', 'cpython-')}-{machine}-linux-{'musl' if kind == 'musllinux' else 'gnu'}.so"


def _headers(platform: str, directory: Path) -> list[str]:
    """Where Python.h is. Debian's asks for a file by the name of the machine that it is compiled for: it gets ours."""
    include = Path(sysconfig.get_path("include"))
    found = [f"-I{include}", f"-I{sysconfig.get_path('platinclude')}"]
    config = include.parent / (sysconfig.get_config_var("MULTIARCH") or "") / include.name / "pyconfig.h"
    if platform and config != include / config.name and config.exists():
        place = directory / f"{platform.split('_', 3)[3]}-linux-gnu" / include.name
        place.mkdir(parents=True)
        shutil.copyfile(config, place / config.name)
        found.append("-I.")
    return found


def _compile(source: Path, directory: Path, name: str, platform: str) -> Path:
    """The path of the compiled module in `directory`."""
    generated, module = directory / f"{source.stem}.c", directory / name
    if find_spec("Cython") is None:
        raise NotCompiledError("there is no Cython")
    # Relative paths, here and below: what is made names its source, and the same source must give the same bytes
    # anywhere.
    translating = [sys.executable, "-m", "cython", "-3", str(_SOURCE), "-o", str(generated)]
    subprocess.run(translating, cwd=source.parents[2], timeout=_LIMIT_S, check=True)
    linking = ["-bundle", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared"]
    headers = _headers(platform, directory)
    compiling = [*_compiler(), "-O2", "-fPIC", "-w", *headers, *linking, generated.name, "-o", module.name]
    try:
        done = subprocess.run(compiling, cwd=directory, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except OSError as error:
        raise NotCompiledError(str(error)) from None
    if done.returncode:
        raise NotCompiledError("\n".join([f"{compiling[0]} failed", *done.stderr.splitlines()[-5:]]))
    return module


def _compiler() -> list[str]:
    for command in (os.environ.get("CC"), sysconfig.get_config_var("CC"), "cc", "gcc", "clang"):
        words = shlex.split(command or "")
        if words and shutil.which(words[0]):
            return words
    raise NotCompiledError("there is no C compiler")
