"""The audit of pinned packages says what it looked up, and never takes nothing for a good sign; the bill of materials
has every pin with its hashes.
"""

from __future__ import annotations

from typing import Any

import pytest

from tools import audit, sbom


def found(*dependencies: dict[str, Any]) -> audit.Found:
    all_found = audit.Found()
    all_found.read({"dependencies": dependencies})
    return all_found


CLEAN = {"name": "redis", "version": "8.0.0", "vulns": []}
KNOWN = {"name": "aiohttp", "version": "3.0.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3.1.0"]}]}
SKIPPED = {"name": "uvloop", "version": "0.23.0", "skip_reason": "Dependency not found: uvloop (0.23.0)"}


def test_all_packages_looked_up_and_none_known_is_zero() -> None:
    assert found(CLEAN).verdict == (0, "1 packages looked up, 0 vulnerabilities known")


def test_a_known_vulnerability_is_named_with_its_cure() -> None:
    code, said = found(CLEAN, KNOWN, KNOWN).verdict
    assert code == 1
    assert said.splitlines()[0] == "aiohttp 3.0.0: PYSEC-1, mended in 3.1.0"
    assert said.count("PYSEC-1") == 1


def test_a_package_that_was_not_looked_up_fails_the_audit() -> None:
    code, said = found(CLEAN, SKIPPED).verdict
    assert code == 2
    assert "1 packages were NOT looked up: uvloop 0.23.0" in said


def test_without_an_advisory_service_it_says_that_nothing_was_audited() -> None:
    code, said = found(SKIPPED).verdict
    assert code == 2
    assert "NOTHING WAS AUDITED" in said


def test_an_audit_that_ends_without_a_report_says_so(monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        audit.audit(("requirements/there-is-none.txt",), [])
    assert ended.value.code == 2
    assert "NOTHING WAS AUDITED in requirements/there-is-none.txt" in capfd.readouterr().err


def test_a_bill_of_materials_lacks_neither_a_pin_nor_its_hashes_nor_has_more() -> None:
    whole = {"name": "whole", "version": "1.0", "externalReferences": [{"hashes": [{"alg": "SHA-256"}]}]}
    bare, other = {"name": "bare", "version": "2.0"}, {"name": "other", "version": "3.0", "hashes": [{}]}
    pins = "whole==1.0 \\\n    --hash=sha256:0\nbare==2.0\nabsent==4.0\n"
    assert sbom.lacking({"components": [whole, bare, other]}, pins) == [
        "absent 4.0 is not in it",
        "other 3.0 is not pinned",
        "bare 2.0 has no hash",
    ]
    assert sbom.lacking({"components": [whole]}, "whole==1.0 \\\n") == []
