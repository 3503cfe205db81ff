"""The deployment files of this repository, parsed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

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
SYSTEMD = ROOT / "deploy" / "systemd"

Tree = dict[str, Any]


def load_yaml(path: Path) -> Tree:
    """A YAML file with its anchors and merges resolved."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def load_json(path: Path) -> Tree:
    return json.loads(path.read_text(encoding="utf-8"))
