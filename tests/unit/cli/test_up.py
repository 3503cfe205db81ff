"""What `sidecar up` says of what it started."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sidecar.cli import up
from sidecar.cli.embedded import embedded_parts
from sidecar.cli.output import CommandError
from sidecar.local import StackConfig
from sidecar.settings import load


@pytest.mark.parametrize(("certificate", "scheme"), [(None, "http"), ("node.pem", "https")])
def test_the_admin_port_is_named_as_it_is_reached(
    certificate: str | None, scheme: str, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    settings = load({"admin_listen": "127.0.0.1:18099"})
    told: Any = SimpleNamespace(
        admin_listen=settings.admin_listen,
        admin_ssl_certificate=certificate,
        listeners=(),
        advertise=settings.advertise,
    )
    stack: Any = SimpleNamespace(config=StackConfig(tmp_path))
    up._print_started(stack, SimpleNamespace(kafka="127.0.0.1:9092", redis="redis://127.0.0.1"), told)  # type: ignore[arg-type]
    told_url = f"{scheme}://127.0.0.1:18099"
    out = capsys.readouterr().out
    assert f"admin       {told_url} " in out
    assert f"--admin-url {told_url}" in out


def test_a_package_that_is_missing_while_the_parts_start_is_named_with_its_extra() -> None:
    with pytest.raises(CommandError, match=r"No module named 'jgo'.*the wheel's extra `local`"), embedded_parts():
        raise ModuleNotFoundError("No module named 'jgo'")
