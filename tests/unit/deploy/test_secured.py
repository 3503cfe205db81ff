"""deploy/compose/secured.yaml and the Prometheus that belongs to it: true to compose.yaml, and to themselves."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from tests.unit.deploy.files import ROOT, SETTINGS, load_yaml

SECURED = load_yaml(ROOT / "deploy" / "compose" / "secured.yaml")["services"]
PLAIN = load_yaml(ROOT / "compose.yaml")["services"]
PROMETHEUS = ROOT / "grafana" / "prometheus"


def mounts(service: Any) -> list[PurePosixPath]:
    return [PurePosixPath(each.split(":")[1]) for each in service["volumes"]]


def test_it_changes_services_that_there_are_and_tells_nodes_settings_that_there_are():
    assert SECURED.keys() <= PLAIN.keys()
    for name in ("sidecar-1", "sidecar-2"):
        assert SECURED[name]["environment"].keys() <= SETTINGS


def test_the_files_that_are_named_are_mounted():
    for name in ("sidecar-1", "sidecar-2"):
        service = SECURED[name]
        named = [PurePosixPath(value) for value in service["environment"].values() if value.startswith("/")]
        assert len(named) == 3
        assert all(path.parent in mounts(service) for path in named)
    job = load_yaml(PROMETHEUS / "secured.yml")["scrape_configs"][0]
    named = [PurePosixPath(job["tls_config"]["ca_file"]), PurePosixPath(job["authorization"]["credentials_file"])]
    assert set(named) == set(mounts(SECURED["prometheus"]))


def test_prometheus_does_the_same_as_without_but_for_tls_and_the_token():
    plain, secured = (load_yaml(PROMETHEUS / f"{name}.yml") for name in ("prometheus", "secured"))
    job = secured["scrape_configs"][0]
    for added in ("scheme", "tls_config", "authorization"):
        del job[added]
    assert secured == plain
    own, before = (each["prometheus"]["command"] for each in (SECURED, PLAIN))
    assert own == [each.replace("prometheus.yml", "secured.yml") for each in before]


def test_no_token_stands_in_the_file():
    for name in ("sidecar-1", "sidecar-2"):
        found = SECURED[name]["environment"]
        assert all(found[f"SIDECAR_ADMIN_{kind}TOKEN"].startswith("${") for kind in ("", "READ_"))
