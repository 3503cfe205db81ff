import socket

import pytest

from sidecar.local.ports import HIGHEST, HOST, LOWEST, free_ports, is_free, is_open


def test_free_ports_differ_and_lie_below_those_of_outgoing_connections() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert all(LOWEST <= port <= HIGHEST for port in ports)


def test_no_port_is_handed_out_twice() -> None:
    assert not set(free_ports(200)) & set(free_ports(200))


def test_a_port_somebody_listens_on_is_not_free_and_is_open() -> None:
    (port,) = free_ports(1)
    assert is_free(port)
    assert not is_open(port)
    with socket.create_server((HOST, port)):
        assert not is_free(port)
        assert is_open(port)


def test_where_nobody_could_ever_listen_is_an_error() -> None:
    with pytest.raises(OSError, match="assign requested address"):
        is_free(19_092, "192.0.2.1")


def test_a_port_of_an_ipv6_address_is_tried_there() -> None:
    try:
        server = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with server:
        assert not is_free(server.getsockname()[1], "::1")


def test_asking_for_more_ports_than_there_are_is_an_error() -> None:
    with pytest.raises(OSError, match="no 20000 free ports"):
        free_ports(20_000)
