"""What a real Kubernetes API server says of the chart and the manifests, where it allows nothing beyond the strictest
standard for pods.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.slow.deploy.api_server import ApiServer, documents, running_api_server
from tests.slow.deploy.helm import helm, rendered
from tests.slow.go_programs import BUILD_LIMIT_S
from tests.unit.deploy import manifests as kubernetes
from tests.unit.deploy.files import CHART, EXAMPLES

pytestmark = pytest.mark.timeout(3 * BUILD_LIMIT_S)

STRICTEST = {f"pod-security.kubernetes.io/{what}": "restricted" for what in ("enforce", "warn")}
CASES = (None, "load-balancers", "ingress", "node-ports", "secured", "strimzi")
OPERATORS = ("monitoring.coreos.com/", "kafka.strimzi.io/")
MADE = (200, 201)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with running_api_server(tmp_path_factory.mktemp("kubernetes")) as found:
        yield found


@pytest.fixture
def namespace(server: ApiServer) -> str:
    """One of the test's own, in which a pod may do nothing that the strictest standard forbids."""
    name = f"test-{secrets.token_hex(4)}"
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": STRICTEST}}
    assert server.apply(manifest, name).status in MADE
    return name


def apply(server: ApiServer, manifests: list[dict[str, Any]], namespace: str) -> None:
    """All of them, without a word against any; kinds of operators are defined first."""
    for each in manifests:
        if not server.knows(each):
            assert each["apiVersion"].startswith(OPERATORS), each
            server.define(each)
        moved = {**each, "metadata": {**each["metadata"], "namespace": namespace}}
        answer = server.apply(moved, namespace)
        assert (answer.status in MADE, answer.warnings) == (True, []), (each["kind"], answer)


def pod_of(workload: dict[str, Any]) -> dict[str, Any]:
    """The first pod, as its controller would make it."""
    template = workload["spec"]["template"]
    claims = [each["metadata"]["name"] for each in workload["spec"].get("volumeClaimTemplates", [])]
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": f"{name}-0"}} for name in claims]
    spec = {**template["spec"], "volumes": [*template["spec"].get("volumes", []), *volumes]}
    metadata = {**template["metadata"], "name": f"{workload['metadata']['name']}-0"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize("example", CASES)
def test_the_chart_is_applied_without_a_word_against_it(server: ApiServer, namespace: str, example: str | None) -> None:
    manifests = list(rendered(example))
    apply(server, manifests, namespace)
    [workload] = kubernetes.of_kind(manifests, "StatefulSet")
    answer = server.ask("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod_of(workload))
    assert (answer.status, answer.warnings) == (201, []), answer.body


def test_applied_again_the_chart_changes_nothing(server: ApiServer, namespace: str) -> None:
    def versions() -> dict[str, str]:
        path = f"/apis/apps/v1/namespaces/{namespace}/statefulsets"
        found = server.ask("GET", path).body["items"]
        return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in found}

    apply(server, list(rendered(None)), namespace)
    before = versions()
    apply(server, list(rendered(None)), namespace)
    assert list(before) == ["kafka-sidecar"]
    assert versions() == before


def test_helm_installs_upgrades_and_uninstalls_a_release(server: ApiServer, namespace: str, tmp_path: Path) -> None:
    server.write_kubeconfig(tmp_path / "kubeconfig")
    there = ("kafka-sidecar", "--kubeconfig", tmp_path / "kubeconfig", "--namespace", namespace)

    def replicas() -> list[int]:
        found = server.ask("GET", f"/apis/apps/v1/namespaces/{namespace}/statefulsets").body["items"]
        return [each["spec"]["replicas"] for each in found]

    installed = helm("install", *there, CHART)
    assert installed.returncode == 0, installed.stderr
    assert (replicas(), "sidecar topic set" in installed.stdout) == ([2], True), installed.stdout
    upgraded = helm("upgrade", *there, CHART, "--set", "nodes=3")
    assert (upgraded.returncode, replicas()) == (0, [3]), upgraded.stderr
    gone = helm("uninstall", *there)
    assert (gone.returncode, replicas()) == (0, []), gone.stderr


def test_the_resources_for_strimzi_are_applied(server: ApiServer, namespace: str) -> None:
    apply(server, list(documents(EXAMPLES / "strimzi-resources.yaml")), namespace)


def test_the_sidecar_in_an_applications_pod_is_applied(server: ApiServer, namespace: str) -> None:
    manifests = kubernetes.load("application")
    apply(server, manifests, namespace)
    for workload in kubernetes.workloads(manifests):
        answer = server.ask("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod_of(workload))
        assert (answer.status, answer.warnings) == (201, []), answer.body


def test_a_mistake_is_not_applied(server: ApiServer, namespace: str) -> None:
    [workload] = kubernetes.of_kind(list(rendered(None)), "StatefulSet")
    typo = {**workload, "spec": {**workload["spec"], "replica": 3}}
    answer = server.apply({**typo, "metadata": {**workload["metadata"], "namespace": namespace}}, namespace)
    assert answer.status not in MADE
    assert "replica" in answer.body["message"]
    pod = pod_of(workload)
    pod["spec"] = {**pod["spec"], "hostNetwork": True}
    assert server.ask("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod).status == 403
