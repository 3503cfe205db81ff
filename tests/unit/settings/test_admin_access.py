from pathlib import Path

import pytest

from sidecar.settings import AdminAccess, SettingsError, admin_access
from tests.unit.settings.conftest import Environment


def test_tools_look_for_a_node_on_this_machine():
    assert admin_access() == AdminAccess("http://127.0.0.1:18080", None)


def test_a_flag_beats_the_environment_beats_the_file(environment: Environment):
    Path("sidecar.toml").write_text('admin_url = "http://file:1"\nadmin_token = "from-file"\n')
    assert admin_access() == AdminAccess("http://file:1", "from-file")
    environment(ADMIN_URL="http://environment:2/", ADMIN_TOKEN="from-environment")
    assert admin_access() == AdminAccess("http://environment:2", "from-environment")
    assert admin_access("http://flag:3").url == "http://flag:3"


@pytest.mark.parametrize(
    ("listen", "url"),
    [
        ("0.0.0.0:28080", "http://127.0.0.1:28080"),
        ("10.0.0.1:28080", "http://10.0.0.1:28080"),
        ("[::1]:28080", "http://[::1]:28080"),
        ("nonsense", "http://127.0.0.1:18080"),
    ],
)
def test_beside_a_node_its_own_admin_address_is_taken(environment: Environment, listen: str, url: str):
    environment(ADMIN_LISTEN=listen)
    assert admin_access().url == url


def test_wrong_settings_of_a_node_do_not_stop_its_tools(environment: Environment):
    environment(NODE_ID="x", LISTEN="y")
    assert admin_access().url == "http://127.0.0.1:18080"


def test_a_file_that_was_asked_for_has_to_be_right_whatever_else_the_node_is_told(environment: Environment):
    environment(NODE_ID="x")
    path = Path("asked-for.toml")
    path.write_text('admin_url = "http://file:1"\n')
    assert admin_access(config=path).url == "http://file:1"
    path.write_text('admin_url = "http://file:1"\nlese_ms = 1\nlinger_ms = -1\n')
    with pytest.raises(SettingsError) as caught:
        admin_access(config=path)
    assert [each.setting for each in caught.value.problems] == ["lese_ms", "SIDECAR_LINGER_MS"]


@pytest.mark.parametrize("token", ["hunter2\n", "hunter2 ", "hunter2€", "hunter2\udcff"])
def test_a_token_that_no_header_can_carry_is_refused_without_being_shown(environment: Environment, token: str):
    Path("sidecar.toml").write_text('admin_token = "hunter2 "\n')
    with pytest.raises(SettingsError, match=r"SIDECAR_ADMIN_TOKEN \(sidecar\.toml\)") as caught:
        admin_access()
    assert "hunter2" not in str(caught.value)
    environment(ADMIN_TOKEN=token)
    with pytest.raises(SettingsError, match=r"SIDECAR_ADMIN_TOKEN \(environment\)") as caught:
        admin_access()
    assert "hunter2" not in str(caught.value)


def test_a_file_that_was_asked_for_has_to_be_there():
    with pytest.raises(SettingsError, match=r"missing\.toml"):
        admin_access(config=Path("missing.toml"))
