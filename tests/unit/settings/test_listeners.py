"""Several listeners of a node: Kafka's syntax and checks (KIP-103), and settings of one listener alone."""

import re
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.settings import Address, Settings, SettingsError, load, resolve
from sidecar.settings.listeners import (
    OWN_SETTINGS,
    PROTOCOLS,
    NamedAddress,
    key_of,
    own_setting,
    parse_listeners,
    parse_protocols,
)
from sidecar.settings.loaded import LoadedSettings

from .conftest import Environment

TWO = {
    "listeners": "INSIDE://0.0.0.0:19092,OUTSIDE://0.0.0.0:19093",
    "advertised_listeners": "INSIDE://sidecar-1:19092,OUTSIDE://kafka.example:443",
    "listener_security_protocol_map": "INSIDE:PLAINTEXT,OUTSIDE:SSL",
    "ssl_certificate": "/tls.pem",
}

names = st.text("ABCXYZ0189_-", min_size=1, max_size=12)
hosts = st.sampled_from(["127.0.0.1", "kafka.example", "[::1]", "10.0.0.7", "sidecar-1.sidecar"])


def problems_of(**flags: str) -> str:
    with pytest.raises(SettingsError) as caught:
        load(flags)
    return "\n".join(map(str, caught.value.problems))


def shown(settings: Settings) -> list[tuple[str, str, str, str]]:
    return [
        (each.name, str(each.listen), str(each.advertise), each.security_protocol) for each in settings.all_listeners
    ]


def test_without_names_there_is_one_listener_that_is_called_like_its_protocol():
    assert shown(load()) == [("PLAINTEXT", "127.0.0.1:19092", "127.0.0.1:19092", "PLAINTEXT")]
    found = load({"security_protocol": "SSL", "ssl_certificate": "/tls.pem", "listen": "127.0.0.1:1"})
    assert shown(found) == [("SSL", "127.0.0.1:1", "127.0.0.1:1", "SSL")]


def test_each_listener_has_its_name_addresses_and_protocol():
    found = load(TWO)
    assert shown(found) == [
        ("INSIDE", "0.0.0.0:19092", "sidecar-1:19092", "PLAINTEXT"),
        ("OUTSIDE", "0.0.0.0:19093", "kafka.example:443", "SSL"),
    ]
    assert (found.listen, found.advertise) == (Address("0.0.0.0", 19092), Address("sidecar-1", 19092))
    assert found.admin_advertise == Address("127.0.0.1", 18080)
    assert load({**TWO, "admin_listen": "0.0.0.0:18080"}).admin_advertise == Address("sidecar-1", 18080)


@given(
    st.lists(st.tuples(names, hosts, st.integers(1, 65_535)), min_size=1, max_size=5, unique_by=lambda each: each[2])
)
def test_what_is_written_is_what_is_read(those: list[tuple[str, str, int]]):
    unique = {key_of(name): (name, host, port) for name, host, port in those}.values()
    text = " , ".join(f"{name.lower()}://{host}:{port}" for name, host, port in unique)
    found = parse_listeners(text, bound=True)
    assert [str(each) for each in found] == [f"{name}://{host}:{port}" for name, host, port in unique]
    assert parse_listeners(",".join(map(str, found)), bound=True) == found


@given(st.text(max_size=40))
def test_any_text_is_listeners_or_a_value_error(text: str):
    for parse in (lambda: parse_listeners(text, bound=True), lambda: parse_protocols(text)):
        with suppress(ValueError):
            parse()


def test_an_empty_host_is_every_interface():
    assert parse_listeners("OUTSIDE://:9093", bound=True) == (NamedAddress("OUTSIDE", Address("0.0.0.0", 9093)),)


# KafkaConfigTest.testDuplicateListeners, testIPv4AndIPv6SamePortListeners
@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("PLAINTEXT://localhost:9091,SSL://localhost:9091", "each listener needs a port of its own"),
        ("A://10.0.0.1:9091,B://10.0.0.2:9091", "each listener needs a port of its own"),
        ("A://127.0.0.1:9092,B://[::1]:9092,C://10.0.0.1:9092", "each listener needs a port of its own"),
        ("A://host:9092,B://[::1]:9092", "each listener needs a port of its own"),
        ("PLAINTEXT://localhost:9091,plaintext://localhost:9092", "has the listener PLAINTEXT twice"),
        ("MY-IN://localhost:1,MY_IN://localhost:2", "has the listener MY_IN twice"),
        ("", "names no listener"),
        (" , ", "names no listener"),
        ("localhost:9092", "is not of the form NAME://host:port"),
        ("://localhost:9092", "is no name of a listener"),
        ("IN SIDE://localhost:9092", "is no name of a listener"),
        ("INSIDE://localhost", "the address of INSIDE"),
        ("INSIDE://localhost:65536", "the address of INSIDE"),
        ("INSIDE://::1:9092", "the address of INSIDE"),
    ],
)
def test_listeners_that_kafka_would_refuse_are_refused(text: str, wrong: str):
    with pytest.raises(ValueError, match=wrong.replace("(", r"\(")):
        parse_listeners(text, bound=True)


def test_one_port_may_be_an_ipv4_and_an_ipv6_listeners():
    assert len(parse_listeners("A://127.0.0.1:9092,B://[::1]:9092", bound=True)) == 2


def test_any_free_port_may_stand_several_times():
    assert len(parse_listeners("A://127.0.0.1:0,B://127.0.0.1:0", bound=True)) == 2


def test_advertised_ports_may_be_the_same():
    found = parse_listeners("HOST://localhost:9091,LB://localhost:9091", bound=False)
    assert [each.address.port for each in found] == [9091, 9091]


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({"advertised_listeners": "INSIDE://sidecar-1:19092"}, "SIDECAR_ADVERTISED_LISTENERS.*is required for OUTSIDE"),
        (
            {"advertised_listeners": TWO["advertised_listeners"] + ",OTHER://host:1"},
            "SIDECAR_ADVERTISED_LISTENERS.*names OTHER, which SIDECAR_LISTENERS does not",
        ),
        (
            {"advertised_listeners": "INSIDE://0.0.0.0:19092,OUTSIDE://kafka.example:443"},
            "SIDECAR_ADVERTISED_LISTENERS.*gives INSIDE a wildcard address",
        ),
        (
            {"advertised_listeners": "INSIDE://sidecar-1:0,OUTSIDE://kafka.example:443"},
            "SIDECAR_ADVERTISED_LISTENERS.*gives INSIDE port 0",
        ),
        ({"listener_security_protocol_map": "INSIDE:PLAINTEXT"}, "PROTOCOL_MAP.*is required for OUTSIDE"),
        ({"listener_security_protocol_map": "INSIDE:PLAINTEXT,OUTSIDE:TLS"}, "gives OUTSIDE the protocol 'TLS'"),
        ({"listener_security_protocol_map": "INSIDE:SSL,inside:PLAINTEXT,OUTSIDE:SSL"}, "has INSIDE twice"),
        ({"listener_security_protocol_map": "INSIDE"}, "is not of the form NAME:PROTOCOL"),
        ({"admin_listen": "127.0.0.1:19093"}, "SIDECAR_ADMIN_LISTEN.*is the address of SIDECAR_LISTENERS"),
        ({"listen": "127.0.0.1:1"}, "SIDECAR_LISTEN .*SIDECAR_LISTENERS says it for each listener"),
        ({"advertise": "host:1"}, "SIDECAR_ADVERTISE .*SIDECAR_LISTENERS says it for each listener"),
        ({"security_protocol": "SSL"}, "SIDECAR_SECURITY_PROTOCOL .*SIDECAR_LISTENERS says it for each listener"),
        ({"listener_inside_ssl_ca": "/ca.pem"}, "SIDECAR_LISTENER_INSIDE_SSL_CA .*listener INSIDE is PLAINTEXT"),
        ({"listener_outside_ssl_client_auth": "required"}, "SIDECAR_SSL_CA .*certificates at listener OUTSIDE"),
        ({"listener_outside_ssl_client_auth": "always"}, "SIDECAR_LISTENER_OUTSIDE_SSL_CLIENT_AUTH = always"),
        ({"listener_elsewhere_ssl_ca": "/ca.pem"}, "has no listener ELSEWHERE, but INSIDE, OUTSIDE"),
        ({"sasl_mechanisms": "PLAIN"}, "SIDECAR_SASL_MECHANISMS .*without a login"),
    ],
)  # fmt: skip
def test_listeners_that_do_not_fit_together_are_told(changed: dict[str, str], wrong: str):
    assert re.search(wrong, problems_of(**{**TWO, **changed}))


def test_a_listener_that_is_called_like_a_protocol_needs_no_map():
    found = load({"listeners": ",".join(f"{name}://127.0.0.1:{port}" for port, name in enumerate(PROTOCOLS[:2], 1)),
                  "ssl_certificate": "/tls.pem"})  # fmt: skip
    assert [each.security_protocol for each in found.all_listeners] == ["PLAINTEXT", "SSL"]


def test_a_map_or_advertised_addresses_without_listeners_are_told():
    assert "SIDECAR_LISTENERS is not set" in problems_of(advertised_listeners="A://host:1")
    assert "SIDECAR_LISTENERS is not set" in problems_of(listener_security_protocol_map="A:SSL")


def test_a_setting_of_one_listener_lies_over_that_of_all():
    found = load(
        {**TWO, "ssl_ca": "/all.pem", "ssl_client_auth": "requested", "listener_outside_ssl_client_auth": "required"}
    )
    inside, outside = found.all_listeners
    assert (inside.ssl_client_auth, outside.ssl_client_auth) == ("requested", "required")
    assert (outside.ssl_certificate, outside.ssl_ca) == ("/tls.pem", "/all.pem")


def test_a_setting_of_all_listeners_may_be_of_use_to_one_alone():
    # INSIDE has no TLS: the certificate is OUTSIDE's, and nothing is wrong with that.
    assert load(TWO).ssl_certificate == "/tls.pem"


def test_settings_of_one_listener_are_read_from_everywhere(environment: Environment, tmp_path: Path):
    file = tmp_path / "sidecar.toml"
    file.write_text('listener_outside_ssl_ca = "/file.pem"\nlistener_outside_ssl_key = "/file.key"\n')
    environment(
        LISTENER_OUTSIDE_SSL_CA="/environment.pem",
        LISTENER_OUTSIDE_SSL_KEY_PASSWORD="secret",
        LISTENER_OUTSIDE_SSL_CLIENT_AUTH="",
    )
    found = resolve({**TWO, "listener_outside_ssl_client_auth": "required"}, file)
    outside = found.settings.all_listeners[1]
    assert (outside.ssl_ca, outside.ssl_key, outside.ssl_client_auth, outside.ssl_key_password) == (
        "/environment.pem",
        "/file.key",
        "required",
        "secret",
    )
    told = {each.setting: (each.value, each.origin) for each in found.shown}
    assert told["SIDECAR_LISTENER_OUTSIDE_SSL_CA"] == ("/environment.pem", "environment")
    assert told["SIDECAR_LISTENER_OUTSIDE_SSL_KEY"] == ("/file.key", str(file))
    assert told["SIDECAR_LISTENER_OUTSIDE_SSL_KEY_PASSWORD"] == ("***", "environment")
    assert told["SIDECAR_LISTEN"][0] == ""
    assert "secret" not in repr(found.settings)


@pytest.mark.parametrize(
    "name", ["LISTENER_OUTSIDE_SSL_CLIENT_AUHT", "LISTENER_OUTSIDE_SASL", "LISTENER_OUTSIDE_SECURITY_PROTOCOL"]
)
def test_a_misspelt_variable_about_the_security_of_a_listener_is_an_error(name: str, environment: Environment):
    environment(**{name: "required"})
    assert f"SIDECAR_{name} (environment): there is no such setting" in problems_of(**TWO)


def test_variables_that_kubernetes_makes_for_a_service_called_sidecar_listener_are_none(environment: Environment):
    environment(LISTENER_SERVICE_PORT_SSL="443", LISTENER_PORT_443_TCP="tcp://10.0.0.1:443")
    load(TWO)


def test_a_listener_asks_for_rules_where_any_of_them_authenticates():
    assert not load(TWO).enforces_acls
    assert load({**TWO, "ssl_ca": "/ca.pem", "listener_outside_ssl_client_auth": "required"}).enforces_acls


def test_a_worker_has_its_own_port_at_every_listener():
    found = load(TWO).for_worker(2)
    assert shown(found) == [
        ("INSIDE", "0.0.0.0:19094", "sidecar-1:19094", "PLAINTEXT"),
        ("OUTSIDE", "0.0.0.0:19095", "kafka.example:445", "SSL"),
    ]


def test_a_node_is_told_its_listeners_as_they_were_read():
    told = resolve({**TWO, "ssl_ca": "/ca.pem", "listener_outside_ssl_client_auth": "required"})
    assert LoadedSettings.from_json(told.to_json()).settings == told.settings


@given(names, st.sampled_from(OWN_SETTINGS))
def test_every_setting_of_a_listener_is_found_by_its_name(name: str, setting: str):
    assert own_setting(f"listener_{key_of(name)}_{setting}") == (key_of(name), setting)
