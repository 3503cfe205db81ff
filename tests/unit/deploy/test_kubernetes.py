"""deploy/kubernetes/application: valid for Kubernetes' schemas, and true to itself. The chart: tests/slow/deploy."""

from __future__ import annotations

import ipaddress
import itertools
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from sidecar.settings import load as load_settings
from tests.unit.deploy import manifests as kubernetes
from tests.unit.deploy.files import KUBERNETES, SETTINGS, load_yaml

DRAIN_S = 15  # docs/operate/operations.md, "Restart and upgrade"
APPLICATION = "application"
ADMIN, CLIENTS = 18080, 19092


@pytest.mark.parametrize("version", kubernetes.VERSIONS)
def test_a_manifest_follows_the_schema(version: str):
    for manifest in kubernetes.load(APPLICATION):
        kubernetes.check(manifest, version)


def test_what_a_container_is_told_are_settings():
    for workload in kubernetes.workloads(kubernetes.load(APPLICATION)):
        for container in kubernetes.containers(workload):
            named = {each for each in kubernetes.environment(container) if each.startswith("SIDECAR_")}
            assert named <= SETTINGS


def test_services_and_workloads_select_pods_that_are_there():
    manifests = kubernetes.load(APPLICATION)
    pods = [each["spec"]["template"]["metadata"]["labels"].items() for each in kubernetes.workloads(manifests)]
    for each in manifests:
        selector = each["spec"].get("selector", {})
        wanted = selector.get("matchLabels", selector).items()
        assert any(wanted <= labels for labels in pods), each["metadata"]["name"]


def test_a_node_beside_an_application_ends_behind_it_and_has_time_to_drain():
    [workload] = kubernetes.workloads(kubernetes.load(APPLICATION))

    assert kubernetes.pod_of(workload)["terminationGracePeriodSeconds"] >= DRAIN_S * 3 + 10
    assert kubernetes.node_of(workload)["restartPolicy"] == "Always"


def start_in_pod(address: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """What the container beside an application runs, with a `sidecar` that says its number."""
    [workload] = kubernetes.workloads(kubernetes.load(APPLICATION))
    node = kubernetes.node_of(workload)
    program = directory / "sidecar"
    program.write_text('#!/bin/sh\necho "$1 $SIDECAR_NODE_ID"\n')
    program.chmod(0o755)
    given = kubernetes.environment_of_pod(node, {"status.podIP": address})
    environment = {"PATH": f"{directory}:{os.environ['PATH']}", **given}
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


def test_the_configuration_is_one_that_a_node_takes(monkeypatch: pytest.MonkeyPatch):
    given = {"SIDECAR_NODE_ID": "7", "SIDECAR_ADVERTISED_LISTENERS": f"INSIDE://10.1.2.3:{CLIENTS}"}
    kubernetes.as_given(monkeypatch, given)

    settings = load_settings(config=KUBERNETES / APPLICATION / "sidecar.toml")

    assert (settings.listen.port, settings.admin_listen.port) == (CLIENTS, ADMIN)
    assert settings.listen.wildcard
    assert settings.admin_listen.wildcard


def test_a_directory_has_no_manifest_that_is_not_applied():
    for path in sorted(KUBERNETES.glob("*/kustomization.yaml")):
        beside = {other.name for other in path.parent.iterdir()} - {path.name, "sidecar.toml"}
        assert beside == set(load_yaml(path)["resources"]), path.parent.name


def test_kustomize_builds_the_directory():
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("no kubectl here; the manifests above were read one by one")
    command = [program, "kustomize", str(KUBERNETES / APPLICATION)]

    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert result.returncode == 0, result.stderr
    built = list(yaml.safe_load_all(result.stdout))
    for manifest in built:
        kubernetes.check(manifest, kubernetes.NEWEST)
    maps = {each["metadata"]["name"] for each in kubernetes.of_kind(built, "ConfigMap")}
    for workload in kubernetes.workloads(built):
        mounted = {each["configMap"]["name"] for each in kubernetes.pod_of(workload)["volumes"] if "configMap" in each}
        assert mounted == maps
