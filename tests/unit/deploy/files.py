"""The deployment files of this repository, parsed."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from sidecar.settings import Settings

ROOT = Path(__file__).resolve().parents[3]
COMPOSE = ROOT / "compose.yaml"
DOCKERFILE = ROOT / "Dockerfile"
DOCKERIGNORE = ROOT / ".dockerignore"
GRAFANA = ROOT / "grafana"
DASHBOARDS = sorted((GRAFANA / "dashboards").glob("*.json"))
PROMETHEUS = GRAFANA / "prometheus" / "prometheus.yml"
RULES = GRAFANA / "prometheus" / "rules" / "sidecar.yml"
RULE_TESTS = Path(__file__).parent / "rules" / "sidecar_test.yml"
RUNBOOK = ROOT / "deploy" / "runbook.md"
KUBERNETES = ROOT / "deploy" / "kubernetes"
CHART = ROOT / "deploy" / "helm" / "kafka-sidecar"
EXAMPLES = ROOT / "deploy" / "helm" / "examples"
SYSTEMD = ROOT / "deploy" / "systemd"

SETTINGS = frozenset(f"SIDECAR_{each.name.upper()}" for each in fields(Settings) if each.name != "listener_settings")

Tree = dict[str, Any]
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C where PyYAML has it: ten times as fast


def load_yaml(path: Path) -> Tree:
    """A YAML file with its anchors and merges resolved."""
    return yaml.load(path.read_text(encoding="utf-8"), _LOADER)


def load_json(path: Path) -> Tree:
    return json.loads(path.read_text(encoding="utf-8"))


def panels(dashboard: Tree) -> list[Tree]:
    """Every panel that shows data."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def variables(text: str) -> frozenset[str]:
    """The names of the variables in a query, without Grafana's own."""
    return frozenset(name for name in re.findall(r"\$\{?(\w+)\}?", text) if not name.startswith("__"))


def resolved(text: str) -> str:
    """`text` as it is for a user who has set no variable."""
    return re.sub(r"\$\{\w+(?::-([^}]*))?\}", lambda found: found[1] or "", text)
