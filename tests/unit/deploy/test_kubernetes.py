"""deploy/kubernetes: valid for Kubernetes' schemas, and true to itself."""

from __future__ import annotations

import ipaddress
import itertools
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from sidecar.settings import load as load_settings
from tests.unit.deploy import manifests as kubernetes
from tests.unit.deploy.files import KUBERNETES, RULES, SETTINGS, Tree, load_yaml
from tests.unit.deploy.manifests import DIRECTORIES

DRAIN_S = 15  # docs/operations.md, "Restart and upgrade"
NEWEST = "newest"
VERSIONS = ("1.29", "1.32", NEWEST)
"""The oldest that the manifests work with, one in between, and the newest whose schemas are at hand."""


def check(manifest: Tree, version: str) -> None:
    """Raises what Kubernetes' own schemas say against it."""
    import kubernetes_validate  # noqa: PLC0415 - takes two seconds

    found = kubernetes_validate.latest_version() if version == NEWEST else version
    kubernetes_validate.validate(manifest, found, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("directory", DIRECTORIES)
def test_a_manifest_follows_the_schema(directory: str, version: str):
    for manifest in kubernetes.load(directory):
        check(manifest, version)


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_what_a_container_is_told_are_settings(directory: str):
    for workload in kubernetes.workloads(kubernetes.load(directory)):
        for container in kubernetes.containers(workload):
            named = {each for each in kubernetes.environment(container) if each.startswith("SIDECAR_")}
            assert named <= SETTINGS


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_services_and_workloads_select_pods_that_are_there(directory: str):
    manifests = kubernetes.load(directory)
    pods = [each["spec"]["template"]["metadata"]["labels"].items() for each in kubernetes.workloads(manifests)]
    for each in manifests:
        selector = each["spec"].get("selector", {})
        wanted = selector.get("matchLabels", selector).items()
        assert any(wanted <= labels for labels in pods), each["metadata"]["name"]


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_a_node_has_time_to_drain_and_one_beside_an_application_ends_behind_it(directory: str):
    for workload in kubernetes.workloads(kubernetes.load(directory)):
        pod = kubernetes.pod_of(workload)
        beside = "initContainers" in pod
        assert pod.get("terminationGracePeriodSeconds", 30) >= DRAIN_S * (3 if beside else 1) + 10
        assert not beside or kubernetes.node_of(workload)["restartPolicy"] == "Always"


def environment_of_pod(container: Tree, pod: dict[str, str]) -> dict[str, str]:
    """What a container is given: fields of the pod, `$(NAME)` filled in, secrets absent."""
    given: dict[str, str] = {}
    for variable, value in kubernetes.environment(container).items():
        if isinstance(value, str):
            given[variable] = re.sub(r"\$\((\w+)\)", lambda found: given[found[1]], value)
        elif "fieldRef" in value:
            given[variable] = pod[value["fieldRef"]["fieldPath"]]
    return given


def as_given(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    for name in [name for name in os.environ if name.startswith("SIDECAR_")]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


def test_pods_of_the_set_have_numbers_and_addresses_of_their_own(monkeypatch: pytest.MonkeyPatch):
    [workload] = kubernetes.workloads(kubernetes.load("nodes"))
    seen: list[tuple[int, str]] = []
    for index in ("0", "1"):
        pod = {
            "metadata.name": f"kafka-sidecar-{index}",
            "metadata.namespace": "streams",
            "metadata.labels['apps.kubernetes.io/pod-index']": index,
        }
        as_given(monkeypatch, environment_of_pod(kubernetes.node_of(workload), pod))
        settings = load_settings(config=KUBERNETES / "nodes" / "sidecar.toml")
        seen.append((settings.node_id, str(settings.advertise)))

    assert seen == [
        (0, "kafka-sidecar-0.kafka-sidecar-nodes.streams.svc:19092"),
        (1, "kafka-sidecar-1.kafka-sidecar-nodes.streams.svc:19092"),
    ]


def outside() -> tuple[kubernetes.Manifests, Tree]:
    """What deploy/kubernetes/outside adds to the nodes, and its patch of their container."""
    directory = KUBERNETES / "outside"
    found = load_yaml(directory / "kustomization.yaml")
    added = [name for name in found["resources"] if name != "../nodes"]
    manifests = [each for name in added for each in yaml.safe_load_all((directory / name).read_text(encoding="utf-8"))]
    [patch] = found["patches"]
    return manifests, load_yaml(directory / patch["path"])


def test_what_is_added_for_clients_outside_follows_the_schema():
    manifests, _ = outside()
    for manifest, version in itertools.product(manifests, VERSIONS):
        check(manifest, version)


def test_each_node_has_an_address_outside_that_leads_to_its_pod_alone(monkeypatch: pytest.MonkeyPatch):
    manifests, patch = outside()
    [workload] = kubernetes.workloads(kubernetes.load("nodes"))
    node, patched = kubernetes.node_of(workload), kubernetes.node_of(patch)
    [port] = patched["ports"]
    balancers = {
        each["spec"]["selector"]["statefulset.kubernetes.io/pod-name"]: each
        for each in manifests
        if each["kind"] == "Service"
    }
    assert patch["metadata"]["name"] == workload["metadata"]["name"]
    assert sorted(balancers) == [f"kafka-sidecar-{index}" for index in range(workload["spec"]["replicas"])]
    for index, (name, service) in enumerate(sorted(balancers.items())):
        pod = {
            "metadata.name": name,
            "metadata.namespace": "streams",
            "metadata.labels['apps.kubernetes.io/pod-index']": str(index),
        }
        merged = {**node, "env": [*node["env"], *patched["env"]]}
        as_given(monkeypatch, environment_of_pod(merged, pod))
        settings = load_settings(config=KUBERNETES / "nodes" / "sidecar.toml")
        inside, beyond = settings.all_listeners
        assert str(inside.advertise) == f"{name}.kafka-sidecar-nodes.streams.svc:19092"
        assert (inside.security_protocol, beyond.security_protocol, beyond.ssl_client_auth) == (
            "PLAINTEXT",
            "SSL",
            "required",
        )
        [balanced] = service["spec"]["ports"]
        host = service["metadata"]["annotations"]["external-dns.alpha.kubernetes.io/hostname"]
        assert (beyond.advertise.host, beyond.advertise.port) == (host, balanced["port"])
        assert (balanced["targetPort"], beyond.listen.port) == (port["name"], port["containerPort"])


def test_the_certificates_of_the_listener_outside_are_mounted_where_it_looks():
    _, patch = outside()
    node = kubernetes.node_of(patch)
    [mount] = node["volumeMounts"]
    [volume] = kubernetes.pod_of(patch)["volumes"]
    files = [value for name, value in kubernetes.environment(node).items() if value.startswith("/")]
    assert mount["name"] == volume["name"]
    assert {Path(file).parent for file in files} == {Path(mount["mountPath"])}


def start_in_pod(address: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """What the container beside an application runs, with a `sidecar` that says its number."""
    [workload] = kubernetes.workloads(kubernetes.load("application"))
    node = kubernetes.node_of(workload)
    program = directory / "sidecar"
    program.write_text('#!/bin/sh\necho "$1 $SIDECAR_NODE_ID"\n')
    program.chmod(0o755)
    environment = {"PATH": f"{directory}:{os.environ['PATH']}", **environment_of_pod(node, {"status.podIP": address})}
    command = [*node["command"], *node["args"]]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=20)


ADDRESSES = ("10.0.0.1", "10.255.255.254", "100.64.0.9", "172.16.3.4", "172.31.255.1", "192.168.0.1", "192.168.255.255")


def test_a_node_beside_an_application_has_a_number_that_no_other_address_gives(tmp_path: Path):
    numbers: set[int] = set()
    for address in ADDRESSES:
        word, number = start_in_pod(address, tmp_path).stdout.split()
        assert word == "serve"
        assert int(number) == int(ipaddress.IPv4Address(address)) & 0x7FFFFFFF
        numbers.add(int(number))

    assert len(numbers) == len(ADDRESSES)


def test_private_ranges_keep_apart_without_the_highest_bit():
    ranges = [
        ipaddress.IPv4Network(text) for text in ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16")
    ]
    firsts = sorted((int(each.network_address) & 0x7FFFFFFF, each.num_addresses) for each in ranges)

    assert all(first + size <= after for (first, size), (after, _) in itertools.pairwise(firsts))


def test_a_pod_without_an_ipv4_address_is_told_what_to_do(tmp_path: Path):
    result = start_in_pod("fd00::1", tmp_path)

    assert (result.returncode, result.stdout) == (2, "")
    assert "fd00::1 is no IPv4 address: set SIDECAR_NODE_ID" in result.stderr


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_the_configuration_is_one_that_a_node_takes(directory: str, monkeypatch: pytest.MonkeyPatch):
    as_given(monkeypatch, {"SIDECAR_NODE_ID": "7", "SIDECAR_ADVERTISED_LISTENERS": "INSIDE://10.1.2.3:19092"})

    settings = load_settings(config=KUBERNETES / directory / "sidecar.toml")

    assert (settings.listen.port, settings.admin_listen.port) == (kubernetes.PORTS["kafka"], kubernetes.PORTS["admin"])
    assert settings.listen.wildcard
    assert settings.admin_listen.wildcard


def test_nodes_beside_applications_and_in_pods_of_their_own_can_work_together():
    first, second = (tomllib.loads((KUBERNETES / name / "sidecar.toml").read_text()) for name in DIRECTORIES)

    assert first == second


def test_prometheus_finds_each_node_once_under_the_job_that_alerts_know():
    [monitor] = [each for each in kubernetes.load("monitoring") if each["kind"] == "ServiceMonitor"]
    [endpoint] = monitor["spec"]["endpoints"]
    for directory in DIRECTORIES:
        services = [each for each in kubernetes.load(directory) if each["kind"] == "Service"]
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        [found] = [each for each in services if wanted <= each["metadata"]["labels"].items()]
        assert endpoint["port"] in {port["name"] for port in found["spec"]["ports"]}
        assert found["spec"]["clusterIP"] == "None"
    jobs = set(re.findall(r'job="(\w+)"', RULES.read_text(encoding="utf-8")))

    assert endpoint["path"] == "/metrics"
    assert [each["replacement"] for each in endpoint["relabelings"] if each["targetLabel"] == "job"] == [*jobs]


def test_the_rule_of_the_operator_holds_every_alert():
    [rule] = [each for each in kubernetes.load("monitoring") if each["kind"] == "PrometheusRule"]

    assert rule["spec"]["groups"] == load_yaml(RULES)["groups"]


def test_a_directory_has_no_manifest_that_is_not_applied():
    for path in sorted(KUBERNETES.glob("*/kustomization.yaml")):
        beside = {other.name for other in path.parent.iterdir()} - {path.name, "sidecar.toml"}
        found = load_yaml(path)
        named = {*found["resources"], *(patch["path"] for patch in found.get("patches", ()))}
        assert beside == {name for name in named if not name.startswith("../")}, path.parent.name


@pytest.mark.parametrize("directory", [*DIRECTORIES, "monitoring", "outside"])
def test_kustomize_builds_the_directory(directory: str):
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("no kubectl here; the manifests above were read one by one")
    command = [program, "kustomize", str(KUBERNETES / directory)]

    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert result.returncode == 0, result.stderr
    built = list(yaml.safe_load_all(result.stdout))
    for manifest in built:
        if "monitoring.coreos.com" not in manifest["apiVersion"]:
            check(manifest, NEWEST)
    maps = {each["metadata"]["name"] for each in built if each["kind"] == "ConfigMap"}
    for workload in kubernetes.workloads(built):
        mounted = {each["configMap"]["name"] for each in kubernetes.pod_of(workload)["volumes"] if "configMap" in each}
        assert mounted == maps
