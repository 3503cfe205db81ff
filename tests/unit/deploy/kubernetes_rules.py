"""What Kubernetes' own schemas cannot see: labels that select nobody, ports that do not meet, settings that are none.

Each rule takes the manifests of a directory of deploy/kubernetes and yields one sentence for each fault. Nothing here
needs a cluster.
"""

from __future__ import annotations

import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import yaml

from sidecar.settings import Settings
from tests.unit.deploy.files import KUBERNETES, Tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SETTINGS = frozenset(f"SIDECAR_{field.name.upper()}" for field in fields(Settings))
PROBES = {"startupProbe": {"/livez", "/readyz"}, "livenessProbe": {"/livez"}, "readinessProbe": {"/readyz"}}
DRAIN_S = 15  # docs/operations.md, "Restart and upgrade"
USER = 10001  # the Dockerfile's
PORTS = {"kafka": 19092, "admin": 18080}
Manifests = list[Tree]


def load(directory: str) -> Manifests:
    """The manifests that a kustomization names, in its order."""
    return [
        document
        for name in kustomization(directory)["resources"]
        for document in yaml.safe_load_all((KUBERNETES / directory / name).read_text(encoding="utf-8"))
    ]


def kustomization(directory: str) -> Tree:
    return yaml.safe_load((KUBERNETES / directory / "kustomization.yaml").read_text(encoding="utf-8"))


def workloads(manifests: Manifests) -> list[Tree]:
    """What makes pods."""
    return [each for each in manifests if each["kind"] in {"StatefulSet", "Deployment"}]


def pod_of(workload: Tree) -> Tree:
    return workload["spec"]["template"]["spec"]


def node_of(workload: Tree) -> Tree:
    """The container that is the sidecar's node."""
    pod = pod_of(workload)
    [node] = [each for each in [*pod.get("initContainers", []), *pod["containers"]] if "ports" in each]
    return node


def containers(manifests: Manifests) -> Iterator[tuple[str, Tree]]:
    for workload in workloads(manifests):
        pod = pod_of(workload)
        for each in [*pod.get("initContainers", []), *pod["containers"]]:
            yield f"{workload['metadata']['name']}/{each['name']}", each


def environment(container: Tree) -> dict[str, Any]:
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container.get("env", [])}


def _matches(selector: Tree, labels: Tree) -> bool:
    return selector.items() <= labels.items()


def settings(manifests: Manifests) -> Iterator[str]:
    """Every `SIDECAR_*` variable is a setting, and what it is made from is there before it."""
    for name, container in containers(manifests):
        known: set[str] = set()
        for variable, value in environment(container).items():
            if variable.startswith("SIDECAR_") and variable not in SETTINGS:
                yield f"{name}: {variable} is no setting"
            for used in re.findall(r"\$\((\w+)\)", str(value)):
                if used not in known:
                    yield f"{name}: {variable} uses {used}, which is not set before it"
            known.add(variable)
    for workload in workloads(manifests):
        node = node_of(workload)
        given = {*environment(node), *re.findall(r"export (\w+)", str(node.get("args")))}
        for variable in sorted({"SIDECAR_NODE_ID", "SIDECAR_ADVERTISE"} - given):
            yield f"{workload['metadata']['name']}: every node would have the same {variable}"


def own_pods(manifests: Manifests) -> Iterator[str]:
    """Who makes pods selects these."""
    for workload in workloads(manifests):
        labels = workload["spec"]["template"]["metadata"]["labels"]
        name = workload["metadata"]["name"]
        if not _matches(workload["spec"]["selector"]["matchLabels"], labels):
            yield f"{name} does not select its own pods"
        for spread in pod_of(workload).get("topologySpreadConstraints", []):
            if not _matches(spread["labelSelector"]["matchLabels"], labels):
                yield f"{name} spreads other pods than its own"


def selectors(manifests: Manifests) -> Iterator[str]:
    """Labels that are selected by are on the pods."""
    pods = [each["spec"]["template"]["metadata"]["labels"] for each in workloads(manifests)]
    for each in manifests:
        spec, name = each["spec"], f"{each['kind']} {each['metadata']['name']}"
        if each["kind"] == "Service" and not any(_matches(spec["selector"], labels) for labels in pods):
            yield f"{name} selects no pod"
        if each["kind"] == "PodDisruptionBudget" and not any(
            _matches(spec["selector"]["matchLabels"], labels) for labels in pods
        ):
            yield f"{name} protects no pod"
        if each["kind"] == "NetworkPolicy":
            for selector in _selectors(each):
                ours = selector.get("app.kubernetes.io/name") not in {"kafka", "redis", None}
                if ours and not any(_matches(selector, labels) for labels in pods):
                    yield f"{name} speaks of pods {selector}, of which there are none"


def names(manifests: Manifests) -> Iterator[str]:
    """A pod of a set is known by the name that it advertises."""
    heads = [each["metadata"]["name"] for each in manifests if each["spec"].get("clusterIP") == "None"]
    for each in manifests:
        if each["kind"] == "StatefulSet":
            service = each["spec"]["serviceName"]
            if service not in heads:
                yield f"{each['metadata']['name']} has no headless service {service}"
            advertised = environment(node_of(each)).get("SIDECAR_ADVERTISE", "")
            if advertised != f"$(POD_NAME).{service}.$(POD_NAMESPACE).svc:{PORTS['kafka']}":
                yield f"{each['metadata']['name']} advertises {advertised}, which is no name of its pods"


def _selectors(policy: Tree) -> Iterator[Tree]:
    yield policy["spec"]["podSelector"].get("matchLabels", {})
    for rule in policy["spec"]["ingress"]:
        for peer in rule.get("from", []):
            yield peer.get("podSelector", {}).get("matchLabels", {})


def ports(manifests: Manifests) -> Iterator[str]:
    """Ports are those of the image; what is named is there."""
    names: set[str] = set()
    for name, container in containers(manifests):
        found = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
        names |= set(found)
        if found and found != PORTS:
            yield f"{name} has the ports {found}"
        for probe in PROBES:
            port = container.get(probe, {}).get("httpGet", {}).get("port", "admin")
            if port != "admin":
                yield f"{name}: {probe} asks port {port}"
    for each in manifests:
        name = f"{each['kind']} {each['metadata']['name']}"
        if each["kind"] == "Service":
            for port in each["spec"]["ports"]:
                if port["targetPort"] not in names:
                    yield f"{name} leads to port {port['targetPort']}, which no container has"
                elif port["port"] != PORTS[port["targetPort"]]:
                    yield f"{name} has {port['targetPort']} at {port['port']}"


def opened(manifests: Manifests) -> Iterator[str]:
    """Ports that a policy opens by name are there."""
    named = {port["name"] for _, container in containers(manifests) for port in container.get("ports", [])}
    for each in manifests:
        if each["kind"] == "NetworkPolicy":
            found = {port["port"] for rule in each["spec"]["ingress"] for port in rule.get("ports", [])}
            for port in sorted(each for each in found - named if isinstance(each, str)):
                yield f"{each['metadata']['name']} opens port {port}, which no container has"


def probes(manifests: Manifests) -> Iterator[str]:
    """A node is asked what is meant for the question; one that merely lacks Redis is not killed for it."""
    for workload in workloads(manifests):
        node, name = node_of(workload), workload["metadata"]["name"]
        for probe, paths in PROBES.items():
            if probe == "readinessProbe" and workload["kind"] == "Deployment":
                if probe in node:
                    yield f"{name}: the application is not ready where its node is not"
                continue
            path = node.get(probe, {}).get("httpGet", {}).get("path")
            if path not in paths:
                yield f"{name}: {probe} asks {path}"


def ending(manifests: Manifests) -> Iterator[str]:
    """A node has time to drain; one beside an application starts before it and ends behind it."""
    for workload in workloads(manifests):
        pod, name = pod_of(workload), workload["metadata"]["name"]
        beside = "initContainers" in pod
        if pod.get("terminationGracePeriodSeconds", 30) < DRAIN_S * (3 if beside else 1) + 10:
            yield f"{name} is killed while it drains"
        if beside and node_of(workload).get("restartPolicy") != "Always":
            yield f"{name}: the application waits until its node has ended"


def hardening(manifests: Manifests) -> Iterator[str]:
    """Nobody is root, can become it, writes to an image, or holds a key to the cluster; memory is bounded."""
    for workload in workloads(manifests):
        pod, name = pod_of(workload), workload["metadata"]["name"]
        context = pod.get("securityContext", {})
        if not context.get("runAsNonRoot") or context.get("runAsUser") != USER or context.get("runAsGroup") != USER:
            yield f"{name} does not run as the image's user"
        if context.get("seccompProfile") != {"type": "RuntimeDefault"}:
            yield f"{name} may call all of the kernel"
        if pod.get("automountServiceAccountToken") is not False:
            yield f"{name} holds a token of the cluster"
        if pod.get("enableServiceLinks") is not False:
            yield f"{name} is told of all services by variables"
    for name, container in containers(manifests):
        context = container.get("securityContext", {})
        if context.get("allowPrivilegeEscalation") is not False:
            yield f"{name} can gain privileges"
        if not context.get("readOnlyRootFilesystem"):
            yield f"{name} can write to its image"
        if context.get("capabilities") != {"drop": ["ALL"]}:
            yield f"{name} keeps capabilities"
        resources = container.get("resources", {})
        if "memory" not in resources.get("limits", {}) or {"cpu", "memory"} - set(resources.get("requests", {})):
            yield f"{name} does not say what it needs"
        if "cpu" in resources.get("limits", {}):
            yield f"{name} is held up by a CPU limit"


def configuration(manifests: Manifests) -> Iterator[str]:
    """The file is mounted where a node looks for it, and is generated; secrets may be absent."""
    for workload in workloads(manifests):
        name, node = workload["metadata"]["name"], node_of(workload)
        where = {each["name"]: each["mountPath"] for each in node["volumeMounts"]}
        volumes = {each["name"]: each for each in pod_of(workload)["volumes"]}
        if set(where) - set(volumes):
            yield f"{name} mounts {sorted(set(where) - set(volumes))}, which is not there"
        if where.get("config") != "/etc/sidecar":
            yield f"{name} does not find sidecar.toml"
        generated = [
            each["name"]
            for directory in DIRECTORIES
            for each in kustomization(directory).get("configMapGenerator", [])
            if each["files"] == ["sidecar.toml"]
        ]
        if volumes["config"]["configMap"]["name"] not in generated:
            yield f"{name} has a file that nobody makes"
    for name, container in containers(manifests):
        for variable, source in environment(container).items():
            if isinstance(source, dict) and "secretKeyRef" in source and not source["secretKeyRef"].get("optional"):
                yield f"{name} does not start without a secret for {variable}"
            if variable == "SIDECAR_ADMIN_TOKEN" and isinstance(source, str):
                yield f"{name} has its token in the manifest"


def bypass(manifests: Manifests) -> Iterator[str]:
    """Kafka is closed to all but nodes, wherever there are nodes in pods of their own."""
    if not any(each["kind"] == "StatefulSet" for each in manifests):
        return
    closed = {
        next(iter(each["spec"]["podSelector"].get("matchLabels", {}).values()), "")
        for each in manifests
        if each["kind"] == "NetworkPolicy"
        and each["spec"]["policyTypes"] == ["Ingress"]
        and all("from" in rule and {} not in rule["from"] for rule in each["spec"]["ingress"])
    }
    yield from (f"{name} is open to everybody" for name in ("kafka", "redis") if name not in closed)


DIRECTORIES = ("nodes", "application")
RULES: tuple[Callable[[Manifests], Iterator[str]], ...] = (
    settings,
    own_pods,
    selectors,
    names,
    ports,
    opened,
    probes,
    ending,
    hardening,
    configuration,
    bypass,
)
