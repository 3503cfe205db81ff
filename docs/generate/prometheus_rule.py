"""deploy/kubernetes/monitoring/prometheus-rule.yaml: the alerts as the Prometheus Operator wants them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_RULES: Final = Path(__file__).resolve().parents[2] / "grafana" / "prometheus" / "rules" / "sidecar.yml"
_HEAD: Final = """\
# Written by `python -m docs.generate` from grafana/prometheus/rules/sidecar.yml: do not edit.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: kafka-sidecar
spec:
"""


def page() -> str:
    """The manifest: the same groups, word for word, under `spec`."""
    lines = _RULES.read_text(encoding="utf-8").splitlines()
    groups = lines[lines.index("groups:") :]
    return _HEAD + "".join(f"  {line}\n" if line else "\n" for line in groups)
