"""The manifests of deploy/kubernetes, parsed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from tests.unit.deploy.files import KUBERNETES, Tree, load_yaml

DIRECTORIES = ("nodes", "application")
PORTS = {"kafka": 19092, "admin": 18080}
Manifests = list[Tree]


def load(directory: str) -> Manifests:
    """The manifests that a kustomization names, in its order."""
    return [
        document
        for name in load_yaml(KUBERNETES / directory / "kustomization.yaml")["resources"]
        for document in yaml.safe_load_all((KUBERNETES / directory / name).read_text(encoding="utf-8"))
    ]


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
