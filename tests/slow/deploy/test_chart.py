"""The chart of deploy/helm, rendered by Helm with several files of values: valid for Kubernetes, and true to a node."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from sidecar.settings import load as load_settings
from sidecar.settings.values import Settings
from tests.slow.deploy.helm import helm, rendered, template
from tests.slow.go_programs import LIMIT_S
from tests.unit.deploy import manifests as kubernetes
from tests.unit.deploy.files import CHART, EXAMPLES, RULES, SETTINGS, load_yaml
from tools.chart import package

pytestmark = pytest.mark.timeout(LIMIT_S)

EXAMPLE_NAMES = ("load-balancers", "ingress", "node-ports", "secured", "strimzi")
CASES = (None, *EXAMPLE_NAMES)
OPERATOR = "monitoring.coreos.com"
LABELS = {
    "app.kubernetes.io/name": "kafka-sidecar",
    "app.kubernetes.io/instance": "kafka-sidecar",
    "app.kubernetes.io/component": "node",
}


def stateful_set(manifests: kubernetes.Manifests) -> dict[str, Any]:
    [found] = kubernetes.of_kind(manifests, "StatefulSet")
    return found


def settings_of(
    manifests: kubernetes.Manifests, index: int, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> Settings:
    """What the node of a pod reads from its environment and its mounted file; a referenced secret is a word."""
    pod = {
        "metadata.name": f"kafka-sidecar-{index}",
        "metadata.namespace": "streams",
        "metadata.labels['apps.kubernetes.io/pod-index']": str(index),
        "status.hostIP": f"10.0.0.{index + 1}",
    }
    node = kubernetes.node_of(stateful_set(manifests))
    given = kubernetes.environment_of_pod(node, pod)
    for name, value in kubernetes.environment(node).items():
        if isinstance(value, dict) and "secretKeyRef" in value:
            given[name] = "redis://:word@redis:6379/0" if name == "SIDECAR_REDIS_URL" else f"word-of-{name}"
    kubernetes.as_given(monkeypatch, given)
    [config] = kubernetes.of_kind(manifests, "ConfigMap")
    path = directory / f"sidecar-{index}.toml"
    path.write_text(config["data"]["sidecar.toml"])
    return load_settings(config=path)


def outside_of(manifests: kubernetes.Manifests, index: int, directory: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address that a node advertises at its second listener."""
    return str(settings_of(manifests, index, directory, monkeypatch).all_listeners[1].advertise)


@pytest.mark.parametrize("example", EXAMPLE_NAMES)
def test_lint_has_nothing_to_say(example: str):
    done = helm("lint", CHART, "--strict", "--values", EXAMPLES / f"{example}.yaml", "--kube-version", "1.32")

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("example", CASES)
def test_what_is_rendered_follows_the_schemas_of_kubernetes(example: str | None):
    manifests = [each for each in rendered(example) if OPERATOR not in each["apiVersion"]]

    assert {"StatefulSet", "Service", "ConfigMap", "NetworkPolicy"} <= {each["kind"] for each in manifests}
    for version in kubernetes.VERSIONS:
        for manifest in manifests:
            kubernetes.check(manifest, version)


@pytest.mark.parametrize("example", CASES)
def test_a_node_takes_the_settings_that_its_pod_gets(
    example: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    manifests = rendered(example)
    node = kubernetes.node_of(stateful_set(manifests))
    assert {name for name in kubernetes.environment(node) if name.startswith("SIDECAR_")} <= SETTINGS
    for index in (0, 1):
        settings = settings_of(manifests, index, tmp_path, monkeypatch)
        first = f"kafka-sidecar-{index}.kafka-sidecar-nodes.streams.svc"
        assert (settings.node_id, str(settings.advertise)) == (index, f"{first}:19092")
        assert str(settings.admin_advertise) == f"{first}:18080"
        assert [each.listen.port for each in settings.all_listeners] == [
            port["containerPort"] for port in node["ports"] if port["name"] != "admin"
        ]
        assert all(each.listen.wildcard for each in (settings, *settings.all_listeners))


@pytest.mark.parametrize("example", CASES)
def test_every_file_that_settings_name_is_mounted(example: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    manifests = rendered(example)
    pod = kubernetes.pod_of(stateful_set(manifests))
    mounts = {each["name"]: each["mountPath"] for each in kubernetes.node_of(stateful_set(manifests))["volumeMounts"]}
    files = {
        f"{mounts[volume['name']]}/{item['path']}"
        for volume in pod["volumes"]
        for item in volume.get("secret", {}).get("items", ())
    }
    [config] = kubernetes.of_kind(manifests, "ConfigMap")

    named = set(re.findall(r'"(/[^"]+)"', config["data"]["sidecar.toml"]))

    assert named <= files
    assert files - named <= {"/etc/sidecar-redis/ca.crt"}  # which the URL of Redis names
    assert set(mounts) == {volume["name"] for volume in pod["volumes"]}


@pytest.mark.parametrize("example", CASES)
def test_a_pod_is_locked_down_watched_and_has_time_to_drain(example: str | None):
    workload = stateful_set(rendered(example))
    pod, node = kubernetes.pod_of(workload), kubernetes.node_of(workload)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    assert pod["terminationGracePeriodSeconds"] >= 25
    assert node["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    probes = {name: node[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {name: probe["path"] for name, probe in probes.items()} == {
        "startup": "/livez",
        "liveness": "/livez",
        "readiness": "/readyz",
    }
    assert {probe["port"] for probe in probes.values()} == {"admin"}
    assert {probe["scheme"] for probe in probes.values()} == {"HTTPS" if example == "secured" else "HTTP"}
    assert set(node["resources"]["limits"]) == {"memory"}


def test_a_cluster_that_chooses_users_by_itself_is_left_to():
    fixed = ("runAsUser", "runAsGroup", "fsGroup")

    pod = kubernetes.pod_of(stateful_set(rendered(None, *(f"--set=podSecurityContext.{name}=null" for name in fixed))))

    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


@pytest.mark.parametrize("example", CASES)
def test_services_policies_and_budgets_select_the_pods_of_the_nodes(example: str | None):
    manifests = rendered(example)
    workload = stateful_set(manifests)
    labels = workload["spec"]["template"]["metadata"]["labels"]
    assert labels.items() >= LABELS.items()
    assert workload["spec"]["selector"]["matchLabels"] == LABELS
    ports = {port["name"] for port in kubernetes.node_of(workload)["ports"]}
    for each in kubernetes.of_kind(manifests, "Service"):
        selector = dict(each["spec"]["selector"])
        assert re.fullmatch(r"kafka-sidecar-\d+", selector.pop("statefulset.kubernetes.io/pod-name", "kafka-sidecar-0"))
        assert selector == LABELS
        assert {port["targetPort"] for port in each["spec"]["ports"]} <= ports
        assert each["spec"]["publishNotReadyAddresses"] is True
    [budget] = kubernetes.of_kind(manifests, "PodDisruptionBudget")
    assert budget["spec"]["selector"]["matchLabels"] == LABELS
    [policy, *_] = kubernetes.of_kind(manifests, "NetworkPolicy")
    assert policy["spec"]["podSelector"]["matchLabels"] == LABELS


@pytest.mark.parametrize("example", CASES)
def test_everything_names_its_namespace_and_a_version(example: str | None):
    manifests = rendered(example)
    chart = load_yaml(CHART / "Chart.yaml")
    own = [each for each in manifests if each["metadata"]["namespace"] == "streams"]
    assert {each["metadata"]["namespace"] for each in manifests} <= {"streams", "kafka"}
    assert all(each["kind"] == "NetworkPolicy" for each in manifests if each not in own)
    for each in manifests:
        assert each["metadata"]["labels"]["app.kubernetes.io/version"] == chart["appVersion"]


def test_each_node_has_a_load_balancer_at_the_address_that_it_advertises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    manifests = rendered("load-balancers", "--set", "nodes=3")
    balancers = [
        each for each in kubernetes.of_kind(manifests, "Service") if each["spec"].get("type") == "LoadBalancer"
    ]
    hosts = {
        each["spec"]["selector"].get("statefulset.kubernetes.io/pod-name", "any"): (
            each["metadata"]["annotations"]["external-dns.alpha.kubernetes.io/hostname"],
            each["spec"]["ports"][0]["port"],
        )
        for each in balancers
    }

    assert len(balancers) == 4
    assert hosts.pop("any") == ("kafka.example", 19093)
    assert {name: f"{host}:{port}" for name, (host, port) in hosts.items()} == {
        f"kafka-sidecar-{index}": outside_of(manifests, index, tmp_path, monkeypatch) for index in range(3)
    }


def test_an_ingress_leads_the_name_that_a_node_advertises_to_its_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    manifests = rendered("ingress")
    services = {each["metadata"]["name"]: each["spec"] for each in kubernetes.of_kind(manifests, "Service")}
    leads: dict[str, str] = {}
    for each in kubernetes.of_kind(manifests, "Ingress"):
        [rule] = each["spec"]["rules"]
        [path] = rule["http"]["paths"]
        behind = path["backend"]["service"]
        assert behind["port"]["number"] in {port["port"] for port in services[behind["name"]]["ports"]}
        assert each["spec"]["tls"] == [{"hosts": [rule["host"]]}]
        leads[rule["host"]] = services[behind["name"]]["selector"].get("statefulset.kubernetes.io/pod-name", "any")

    assert leads.pop("kafka.example") == "any"
    assert {f"{host}:443": pod for host, pod in leads.items()} == {
        outside_of(manifests, index, tmp_path, monkeypatch): f"kafka-sidecar-{index}" for index in range(2)
    }


def test_the_port_of_a_machine_leads_to_its_own_node_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    manifests = rendered("node-ports")
    [own] = [each for each in kubernetes.of_kind(manifests, "Service") if each["metadata"]["name"].endswith("machines")]
    apart = kubernetes.pod_of(stateful_set(manifests))["affinity"]["podAntiAffinity"]

    assert (own["spec"]["type"], own["spec"]["externalTrafficPolicy"]) == ("NodePort", "Local")
    assert own["spec"]["ports"][0]["nodePort"] == 31092
    assert apart["requiredDuringSchedulingIgnoredDuringExecution"][0]["topologyKey"] == "kubernetes.io/hostname"
    assert outside_of(manifests, 1, tmp_path, monkeypatch) == "10.0.0.2:31092"
    [policy] = kubernetes.of_kind(manifests, "NetworkPolicy")
    [rule] = [rule for rule in policy["spec"]["ingress"] if rule["ports"] == [{"port": "machines"}]]
    assert rule["from"] == [{"ipBlock": {"cidr": "10.0.0.0/8"}}]


def test_policies_let_only_the_nodes_of_this_namespace_reach_kafka_and_redis():
    policies = {each["metadata"]["name"]: each for each in kubernetes.of_kind(rendered("secured"), "NetworkPolicy")}

    for name, port in (("kafka", 9093), ("redis", 6379)):
        policy = policies[f"kafka-sidecar-{name}"]
        assert policy["metadata"]["namespace"] == "kafka"
        among, nodes = policy["spec"]["ingress"]
        assert among == {"from": [{"podSelector": policy["spec"]["podSelector"]}]}
        assert nodes["ports"] == [{"port": port}]
        assert nodes["from"] == [
            {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "streams"}},
                "podSelector": {"matchLabels": LABELS},
            }
        ]
    assert "kafka-sidecar-kafka" not in {each["metadata"]["name"] for each in rendered(None)}


def test_secrets_come_by_reference_and_no_value_holds_one():
    manifests = rendered("secured")
    node = kubernetes.node_of(stateful_set(manifests))
    references = {
        name: (value["secretKeyRef"]["name"], value["secretKeyRef"]["key"])
        for name, value in kubernetes.environment(node).items()
        if isinstance(value, dict) and "secretKeyRef" in value
    }

    assert references == {
        "SIDECAR_ADMIN_READ_TOKEN": ("kafka-sidecar", "admin-read-token"),
        "SIDECAR_ADMIN_TOKEN": ("kafka-sidecar", "admin-token"),
        "SIDECAR_REDIS_URL": ("kafka-sidecar", "redis-url"),
    }
    assert not kubernetes.of_kind(manifests, "Secret")


def test_nodes_that_scale_have_no_fixed_number_and_services_for_as_many_as_there_may_be():
    arguments = ("--set", "autoscaling.enabled=true", "--set", "autoscaling.maxNodes=4")
    manifests = rendered("load-balancers", *arguments)
    [scaler] = kubernetes.of_kind(manifests, "HorizontalPodAutoscaler")
    pods = [
        each["spec"]["selector"].get("statefulset.kubernetes.io/pod-name")
        for each in kubernetes.of_kind(manifests, "Service")
    ]

    assert "replicas" not in stateful_set(manifests)["spec"]
    assert scaler["spec"]["scaleTargetRef"]["name"] == stateful_set(manifests)["metadata"]["name"]
    assert sorted(filter(None, pods)) == [f"kafka-sidecar-{index}" for index in range(4)]
    assert not kubernetes.of_kind(rendered("load-balancers"), "HorizontalPodAutoscaler")


@pytest.mark.parametrize("anywhere", [False, True])
def test_prometheus_finds_each_node_once_under_the_job_that_alerts_know(anywhere: bool):
    manifests = rendered("secured", "--set", f"serviceMonitor.anyNamespace={str(anywhere).lower()}")
    [monitor] = kubernetes.of_kind(manifests, "ServiceMonitor")
    [endpoint] = monitor["spec"]["endpoints"]
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    services = kubernetes.of_kind(manifests, "Service")
    beside = kubernetes.of_kind(kubernetes.load("application"), "Service")
    found = [each for each in (*services, *beside) if wanted <= each["metadata"]["labels"].items()]

    assert [each["metadata"]["name"] for each in found] == (
        ["kafka-sidecar-nodes", "billing-sidecar"] if anywhere else ["kafka-sidecar-nodes"]
    )
    for each in found:
        assert each["spec"]["clusterIP"] == "None"
        assert endpoint["port"] in {port["name"] for port in each["spec"]["ports"]}
    jobs = set(re.findall(r'job="(\w+)"', RULES.read_text(encoding="utf-8")))
    assert [each["replacement"] for each in endpoint["relabelings"] if each["targetLabel"] == "job"] == [*jobs]
    assert (endpoint["path"], endpoint["scheme"]) == ("/metrics", "https")
    assert endpoint["tlsConfig"]["ca"]["secret"] == {"name": "kafka-sidecar-tls", "key": "ca.crt"}
    assert endpoint["authorization"]["credentials"] == {"name": "kafka-sidecar", "key": "admin-read-token"}


def test_the_rule_of_the_operator_holds_every_alert():
    [rule] = kubernetes.of_kind(rendered("secured"), "PrometheusRule")

    assert rule["spec"]["groups"] == load_yaml(RULES)["groups"]
    assert rule["metadata"]["labels"]["release"] == "prometheus"


def test_a_changed_setting_rolls_the_nodes():
    def of(*arguments: str) -> str:
        template = stateful_set(rendered(None, *arguments))["spec"]["template"]
        return template["metadata"]["annotations"]["kafka-sidecar/config"]

    assert of() == of()
    assert of() != of("--set", "settings.linger_ms=5")


def test_settings_reach_a_node_as_they_were_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    values = ("--set", "settings.retry_buffer_bytes=1099511627776", "--set", "settings.deduplication=true")
    words = ("--set-string", r"settings.super_users=User:CN=a<b\,O=c")

    settings = settings_of(rendered(None, *values, *words), 0, tmp_path, monkeypatch)

    assert (settings.retry_buffer_bytes, settings.deduplication) == (1 << 40, True)
    assert "CN=a<b,O=c" in str(settings.super_users)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("settings.linger_ms=abc",), "/settings/linger_ms"),
        (("settings.no_such=1",), "no_such"),
        (("settings.kafka_sasl_password=word",), "kafka_sasl_password"),
        (("settings.redis_url=redis://h:1/0",), "redis_url"),
        (("redis.url=redis://:word@h:1/0",), "/redis/url"),
        (("kafka.securityProtocol=SASL_SSL",), "/kafka/sasl/mechanism"),
        (("listeners[0].securityProtocol=SSL",), "certificate"),
        (("listeners[0].name=admin",), "/listeners/0/name"),
        (("listeners[0].exposure.type=loadBalancer",), "host"),
        (("listeners[0].exposure.type=nodePort", "listeners[0].exposure.nodePort=31092"), "antiAffinity: required"),
        (("nodes=0",), "/nodes"),
        (("replicas=3",), "replicas"),
    ],
)
def test_wrong_values_are_refused_by_name(arguments: tuple[str, ...], told: str):
    base = ("listeners[0].port=19092",)
    whole = (
        "listeners[0].name=INSIDE",
        "listeners[0].securityProtocol=PLAINTEXT",
        "listeners[0].exposure.type=cluster",
    )

    done = template(None, *(word for each in (*base, *whole, *arguments) for word in ("--set", each)))

    assert done.returncode != 0
    assert told in done.stderr


def test_the_archive_of_a_release_is_one_that_helm_installs(tmp_path: Path):
    archive = package(CHART, tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    again = package(CHART, other)
    assert archive.read_bytes() == again.read_bytes()
    done = helm("package", CHART, "--destination", tmp_path / "by-helm")
    [made] = (tmp_path / "by-helm").iterdir()

    assert done.returncode == 0, done.stderr
    assert made.name == archive.name
    assert template("secured", chart=archive).stdout == template("secured", chart=made).stdout != ""
