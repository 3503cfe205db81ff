"""A Kubernetes API server with its etcd, as plain processes: it checks what is applied to it, and runs nothing."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from sidecar.local.ports import HOST, free_ports
from sidecar.local.process import Child, Command
from tests.programs import stop_all
from tests.slow.go_programs import program_of_module
from tests.wait import wait_for

VERSION: Final = "v1.32.13"
_ETCD: Final = "v3.5.21"
_TOKEN: Final = "word"
_START_S: Final = 180


class Answer(NamedTuple):
    """Status, body, and what the server warns of."""

    status: int
    body: dict[str, Any]
    warnings: list[str]


class ApiServer:
    """Requests by somebody who may do everything."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._context = ssl.create_default_context()
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE  # its certificate is its own, on loopback
        self._resources: dict[str, dict[str, dict[str, Any]]] = {}

    def write_kubeconfig(self, path: Path) -> None:
        """The same access for Helm."""
        server = {"server": self._url, "insecure-skip-tls-verify": True}
        found = {
            "clusters": [{"name": "it", "cluster": server}],
            "users": [{"name": "somebody", "user": {"token": _TOKEN}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "somebody"}}],
            "current-context": "it",
        }
        path.write_text(yaml.safe_dump(found), encoding="utf-8")

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Answer:
        headers = {"Authorization": f"Bearer {_TOKEN}", "Content-Type": kind}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60, context=self._context) as answer:
                return Answer(answer.status, json.load(answer), answer.headers.get_all("Warning") or [])
        except urllib.error.HTTPError as refusal:
            text = refusal.read().decode()  # JSON, unless there is no such path
            return Answer(refusal.code, json.loads(text) if text.startswith("{") else {"message": text}, [])

    def is_ready(self) -> bool:
        try:
            return self.ask("GET", "/api/v1/namespaces/default").status == 200
        except OSError:
            return False

    def knows(self, manifest: dict[str, Any]) -> bool:
        return manifest["kind"] in self._kinds(manifest["apiVersion"])

    def apply(self, manifest: dict[str, Any], namespace: str) -> Answer:
        """Server-side, as `kubectl apply --server-side --validate=strict`: an unknown field is an error."""
        its = self._kinds(manifest["apiVersion"])[manifest["kind"]]
        within = f"/namespaces/{manifest['metadata'].get('namespace', namespace)}" if its["namespaced"] else ""
        path = f"{_root(manifest['apiVersion'])}{within}/{its['name']}/{manifest['metadata']['name']}"
        query = "?fieldManager=test&fieldValidation=Strict"
        return self.ask("PATCH", path + query, manifest, "application/apply-patch+yaml")

    def define(self, manifest: dict[str, Any]) -> None:
        """A kind of an operator's, as this manifest has it, with any fields."""
        group, version = manifest["apiVersion"].split("/")
        kind, plural = manifest["kind"], f"{manifest['kind'].lower()}s"
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        definition = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{group}"},
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
                "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
            },
        }
        answer = self.apply(definition, "default")
        assert answer.status in (200, 201), answer.body
        wait_for(lambda: self._forget(manifest["apiVersion"]) or self.knows(manifest), f"the kind {kind}", 60)

    def _forget(self, version: str) -> None:
        self._resources.pop(version, None)

    def _kinds(self, version: str) -> dict[str, dict[str, Any]]:
        """The resources of an API group by their kind, without parts such as `status`."""
        if version not in self._resources:
            found = self.ask("GET", _root(version)).body.get("resources", [])
            self._resources[version] = {each["kind"]: each for each in found if "/" not in each["name"]}
        return self._resources[version]


def _root(version: str) -> str:
    return f"/apis/{version}" if "/" in version else f"/api/{version}"


def documents(path: Path) -> Sequence[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if each]


@contextmanager
def running_api_server(directory: Path) -> Iterator[ApiServer]:
    """Both processes, ended afterwards."""
    etcd = program_of_module("etcd", "go.etcd.io/etcd/server/v3", f"go.etcd.io/etcd/server/v3@{_ETCD}")
    server = program_of_module(
        "kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", f"k8s.io/kubernetes@{VERSION}",
        gitVersion=VERSION, gitMajor="1", gitMinor=VERSION.split(".")[1],
    )  # fmt: skip
    client, peer, port = free_ports(3)
    key, tokens = directory / "accounts.key", directory / "tokens.csv"
    key.write_bytes(
        rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
    tokens.write_text(f"{_TOKEN},somebody,1,system:masters\n", encoding="utf-8")
    store = (
        str(etcd), f"--data-dir={directory / 'etcd'}", "--unsafe-no-fsync",
        f"--listen-client-urls=http://{HOST}:{client}", f"--advertise-client-urls=http://{HOST}:{client}",
        f"--listen-peer-urls=http://{HOST}:{peer}", f"--initial-advertise-peer-urls=http://{HOST}:{peer}",
        f"--initial-cluster=default=http://{HOST}:{peer}",
    )  # fmt: skip
    front = (
        str(server), f"--etcd-servers=http://{HOST}:{client}", f"--bind-address={HOST}", f"--secure-port={port}",
        f"--cert-dir={directory / 'certificates'}", f"--token-auth-file={tokens}", "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}", "--service-cluster-ip-range=10.96.0.0/16",
        "--endpoint-reconciler-type=none", "--disable-admission-plugins=ServiceAccount",
    )  # fmt: skip
    children: list[Child] = []
    try:
        for name, command in (("etcd", store), ("kube-apiserver", front)):
            children.append(Child.start(Command(name, command, directory / f"{name}.log", {}, directory)))
        found = ApiServer(f"https://{HOST}:{port}")

        def is_ready() -> bool:
            gone = [each.log_text() for each in children if not each.alive]
            assert not gone, gone
            return found.is_ready()

        wait_for(is_ready, "the API server", _START_S)
        yield found
    finally:
        stop_all(children, 20)
