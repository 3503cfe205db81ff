"""deploy/helm/kafka-sidecar: what of the chart follows from the code, the schema of its values and the alerts.

The schema refuses what a node would refuse when it starts, so that `helm install` says it: settings have the rules of
`sidecar config schema`. A setting that the chart writes itself, and every secret, has no place under `settings`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from sidecar.settings.schema import is_secret, json_schema

_RULES: Final = Path(__file__).resolve().parents[2] / "grafana" / "prometheus" / "rules" / "sidecar.yml"
_WRITTEN: Final = frozenset(
    [
        "bootstrap_servers",
        "redis_url",
        "cluster",
        "node_id",
        "listen",
        "advertise",
        "security_protocol",
        "listeners",
        "advertised_listeners",
        "listener_security_protocol_map",
        "admin_listen",
        "admin_advertise",
        "admin_url",
        "admin_ssl_certificate",
        "admin_ssl_key",
        "admin_client_ssl_ca",
        "kafka_security_protocol",
        "kafka_ssl_ca",
        "kafka_ssl_certificate",
        "kafka_ssl_key",
        "kafka_sasl_mechanism",
        "kafka_sasl_username",
        "kafka_sasl_password_file",
        "kafka_sasl_token_url",
        "kafka_sasl_client_id",
        "kafka_sasl_scope",
    ]
)
"""Settings that templates write from values of their own."""
_OF_LISTENERS: Final = frozenset({"ssl_certificate", "ssl_key", "ssl_ca", "ssl_client_auth", "sasl_users_file"})
"""The same of one listener's settings."""

_TEXT: Final = {"type": "string"}
_FREE: Final = {"type": "object"}
_FLAG: Final = {"type": "boolean"}
_PORT: Final = {"type": "integer", "minimum": 1, "maximum": 65535}
_NODE_PORT: Final = {"type": "integer", "minimum": 1024, "maximum": 65535}
_COUNT: Final = {"type": "integer", "minimum": 1, "maximum": 1000}
_TEXTS: Final = {"type": "object", "additionalProperties": _TEXT}
_OBJECTS: Final = {"type": "array", "items": _FREE}
_HOST: Final = {"type": "string", "pattern": r"^[a-z0-9{}.-]+$"}
_NODE_HOST: Final = {"type": "string", "pattern": r"^[a-z0-9.-]*\{node\}[a-z0-9.-]*$"}
_PROTOCOL: Final = {"enum": ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]}
_MECHANISM: Final = {"enum": ["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]}


def schema() -> str:
    """values.schema.json, of draft 7: older Helm 3 knows no later one."""
    found = _object(
        nodes=_COUNT,
        cluster=_setting("cluster"),
        nameOverride=_TEXT,
        fullnameOverride=_TEXT,
        image=_object(
            repository={"type": "string", "minLength": 1},
            tag=_TEXT,
            digest={"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
            pullPolicy={"enum": ["Always", "IfNotPresent", "Never"]},
            pullSecrets={"type": "array", "items": _TEXT},
        ),
        kafka=_kafka(),
        redis=_object(
            url={
                "type": "string",
                "pattern": "^rediss?://[^@]+$",
                "not": {"pattern": "[?&][A-Za-z0-9_]*[pP][aA][sS][sS]"},  # redis-py takes `password` there, too
                "description": "Without a password: see urlSecret.",
            },
            urlSecret=_secret("key"),
            ca=_secret("key"),
        ),
        listeners={"type": "array", "minItems": 1, "items": _listener()},
        bindAddress=_TEXT,
        admin=_object(
            port=_PORT,
            certificate=_secret("certificate", "key", "ca"),
            token=_secret("key"),
            readToken=_secret("key"),
        ),
        settings=_settings(),
        **_kubernetes(),
    )
    found["properties"]["global"] = _FREE  # what a chart that has this one as a part shares with it
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of the chart kafka-sidecar"}
    return json.dumps({**head, **found}, indent=2) + "\n"


def rules() -> str:
    """The groups of the alerts, word for word."""
    lines = _RULES.read_text(encoding="utf-8").splitlines(keepends=True)
    head = "# Written by `python -m docs.generate` from grafana/prometheus/rules/sidecar.yml: do not edit.\n"
    return head + "".join(lines[lines.index("groups:\n") :])


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _secret(*keys: str) -> dict[str, Any]:
    """Which keys of a Secret of this namespace; without `secretName` there is none."""
    return _object(secretName=_TEXT, **{key: {"type": "string", "minLength": 1} for key in keys})


def _setting(name: str) -> dict[str, Any]:
    return json_schema()["properties"][name]


def _settings() -> dict[str, Any]:
    """What may stand under `settings`."""
    properties = json_schema()["properties"]
    found = {name: each for name, each in properties.items() if name not in _WRITTEN and not is_secret(name)}
    registry = found["schema_registry_url"]
    found["schema_registry_url"] = {
        **registry,
        "not": {"pattern": "//[^/?#]*@"},
        "description": f"{registry['description']} With a password it belongs into a Secret: see extraEnv.",
    }
    return _object(**found)


def _kafka() -> dict[str, Any]:
    login = _object(
        mechanism=_MECHANISM,
        username=_TEXT,
        password=_secret("key"),
        tokenUrl=_TEXT,
        clientId=_TEXT,
        clientSecret=_secret("key"),
        scope=_TEXT,
    )
    found = _object(
        bootstrapServers=_setting("bootstrap_servers"),
        securityProtocol=_PROTOCOL,
        ca=_secret("key"),
        certificate=_secret("certificate", "key"),
        sasl=login,
    )
    logged_in = {"properties": {"securityProtocol": {"pattern": "^SASL_"}}}
    mechanism = {"properties": {"sasl": {"properties": {"mechanism": {"minLength": 1}}}}}
    return {**found, "if": logged_in, "then": mechanism}


def _listener() -> dict[str, Any]:
    prefix, suffix = "^listener_[a-z0-9_]+_", "$"
    rules = {
        pattern.removeprefix(prefix).removesuffix(suffix): each
        for pattern, each in json_schema()["patternProperties"].items()
    }
    found = _object(
        name={  # the name of a port, too
            "type": "string",
            "pattern": "^[A-Za-z]([A-Za-z0-9_-]{0,13}[A-Za-z0-9])?$",
            "not": {"pattern": "^[Aa][Dd][Mm][Ii][Nn]$"},
        },
        port=_PORT,
        securityProtocol=_PROTOCOL,
        certificate=_required(_secret("certificate", "key"), "secretName"),
        clientCa=_required(_secret("key"), "secretName"),
        clientAuth=rules["ssl_client_auth"],
        users=_required(_secret("key"), "secretName"),
        settings=_object(
            **{name: each for name, each in rules.items() if name not in _OF_LISTENERS and "password" not in name}
        ),
        exposure=_exposure(),
        **{"from": _OBJECTS},
    )
    encrypted = {"properties": {"securityProtocol": {"pattern": "SSL$"}}}
    checked = {"properties": {"clientAuth": {"const": "required"}}, "required": ["clientAuth"]}
    through_ingress = {"properties": {"exposure": {"properties": {"type": {"const": "ingress"}}}}}
    return {
        **_required(found, "name", "port", "securityProtocol", "exposure"),
        "allOf": [
            {"if": encrypted, "then": {"required": ["certificate"]}},
            {"if": checked, "then": {"required": ["clientCa"]}},
            {"if": through_ingress, "then": encrypted},
        ],
    }


def _exposure() -> dict[str, Any]:
    """By which address clients reach each node."""
    annotations = {"annotations": {**_TEXTS, "description": "{node} and {host} are filled in for each node."}}
    named = {"host": _NODE_HOST, "bootstrapHost": _HOST, "port": _PORT, **annotations}
    kinds = {
        "cluster": _object(),
        "loadBalancer": _required(
            _object(**named, loadBalancerClass=_TEXT, sourceRanges={"type": "array", "items": _TEXT}), "host"
        ),
        "nodePort": _required(_object(host=_HOST, nodePort=_NODE_PORT, bootstrapNodePort=_NODE_PORT), "nodePort"),
        "ingress": _required(_object(**named, className=_TEXT), "host"),
    }
    for name, kind in kinds.items():
        kind["properties"]["type"] = {"const": name}
    return {
        "type": "object",
        "required": ["type"],
        "properties": {"type": {"enum": [*kinds]}},
        "allOf": [
            {"if": {"properties": {"type": {"const": name}}}, "then": kind} for name, kind in kinds.items()
        ],
    }  # fmt: skip


def _required(found: dict[str, Any], *names: str) -> dict[str, Any]:
    return {**found, "required": [*names]}


def _kubernetes() -> dict[str, Any]:
    """What says nothing to a node, only to Kubernetes; its own objects are checked by the API server."""
    behind = _object(enabled=_FLAG, namespace=_TEXT, podLabels=_TEXTS, port=_PORT, **{"from": _OBJECTS})
    return {
        "resources": _FREE,
        "antiAffinity": {"enum": ["preferred", "required", "none"]},
        "affinity": _FREE,
        "topologySpread": _OBJECTS,
        "nodeSelector": _TEXTS,
        "tolerations": _OBJECTS,
        "priorityClassName": _TEXT,
        "terminationGracePeriodSeconds": {"type": "integer", "minimum": 25},
        "podDisruptionBudget": _object(enabled=_FLAG, maxUnavailable={"type": ["integer", "string"]}),
        "autoscaling": _object(
            enabled=_FLAG, minNodes=_COUNT, maxNodes=_COUNT, targetCPU={"type": "string", "pattern": "^[0-9.]+m?$"}
        ),
        "networkPolicy": _object(enabled=_FLAG, adminFrom=_OBJECTS, kafka=behind, redis=behind),
        "serviceMonitor": _object(
            enabled=_FLAG, labels=_TEXTS, interval=_TEXT, scrapeTimeout=_TEXT, anyNamespace=_FLAG
        ),
        "prometheusRule": _object(enabled=_FLAG, labels=_TEXTS),
        "podSecurityContext": _FREE,
        "securityContext": _FREE,
        "serviceAccountName": _TEXT,
        "podLabels": _TEXTS,
        "podAnnotations": _TEXTS,
        "extraEnv": _OBJECTS,
        "extraVolumes": _OBJECTS,
        "extraVolumeMounts": _OBJECTS,
    }
