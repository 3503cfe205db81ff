"""Manifests for Kubernetes, of deploy/kubernetes and of the chart: what they say, and what they give a container."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.unit.deploy.files import KUBERNETES, Tree, load_yaml

NEWEST = "newest"
VERSIONS = ("1.29", "1.32", NEWEST)
"""The oldest that the manifests work with, one in between, and the newest whose schemas are at hand."""
Manifests = list[Tree]


def load(directory: str) -> Manifests:
    """The manifests that a kustomization names, in its order."""
    return [
        document
        for name in load_yaml(KUBERNETES / directory / "kustomization.yaml")["resources"]
        for document in yaml.safe_load_all((KUBERNETES / directory / name).read_text(encoding="utf-8"))
    ]


def check(manifest: Tree, version: str) -> None:
    """Raises what Kubernetes' own schemas say against it."""
    import kubernetes_validate  # noqa: PLC0415 - takes two seconds

    found = kubernetes_validate.latest_version() if version == NEWEST else version
    kubernetes_validate.validate(manifest, found, strict=True)


def of_kind(manifests: Manifests, kind: str) -> Manifests:
    return [each for each in manifests if each["kind"] == kind]


def workloads(manifests: Manifests) -> list[Tree]:
    """What makes pods."""
    return [each for each in manifests if each["kind"] in {"StatefulSet", "Deployment"}]


def pod_of(workload: Tree) -> Tree:
    return workload["spec"]["template"]["spec"]


def containers(workload: Tree) -> Iterator[Tree]:
    pod = pod_of(workload)
    yield from (*pod.get("initContainers", []), *pod["containers"])


def node_of(workload: Tree) -> Tree:
    """The container that is the sidecar's node."""
    [node] = [each for each in containers(workload) if "ports" in each]
    return node


def environment(container: Tree) -> dict[str, Any]:
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container.get("env", [])}


def environment_of_pod(container: Tree, pod: dict[str, str]) -> dict[str, str]:
    """What a container is given: fields of the pod, `$(NAME)` filled in, secrets absent."""
    given: dict[str, str] = {}
    for variable, value in environment(container).items():
        if isinstance(value, str):
            given[variable] = re.sub(r"\$\((\w+)\)", lambda found: given[found[1]], value)
        elif "fieldRef" in value:
            given[variable] = pod[value["fieldRef"]["fieldPath"]]
    return given


def as_given(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    """Have settings be read from this environment, and from nothing of this one."""
    for name in [name for name in os.environ if name.startswith("SIDECAR_")]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
