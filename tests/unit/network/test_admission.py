"""How many connections there may be, and which one is too many."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest

from sidecar.network.admission import (
    BURST_S,
    Admission,
    ConnectionLimits,
    Refusal,
    Seat,
    address_group,
    admin_connections,
    parse_overrides,
    reserved_files,
)


@dataclass
class Door:
    """An admission whose clock stands still until a test moves it."""

    limits: ConnectionLimits
    now: float = 0.0
    refused: list[tuple[Refusal, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.admission = Admission(self.limits, lambda why, host: self.refused.append((why, host)), lambda: self.now)

    def enter(self, host: str) -> Seat:
        seat = self.admission.enter(host)
        assert seat is not None, self.refused
        return seat

    def reason(self, host: str) -> Refusal:
        """Why a connection is refused, which it has to be."""
        assert self.admission.enter(host) is None
        return self.refused[-1][0]


def limits(
    connections: int = 100,
    per_address: int = 100,
    per_principal: int = 0,
    rate: int = 0,
    files: int = 1_000,
    address_files: int = 1_000_000,
) -> ConnectionLimits:
    return ConnectionLimits(connections, per_address, per_principal, rate, files, address_files)


def test_one_address_cannot_take_the_places_of_others() -> None:
    door = Door(limits(connections=4, per_address=2))
    door.enter("10.0.0.1")
    door.enter("10.0.0.1")
    assert door.reason("10.0.0.1") is Refusal.ADDRESS
    door.enter("10.0.0.2")
    assert door.refused == [(Refusal.ADDRESS, "10.0.0.1")]


def test_an_address_may_have_a_limit_of_its_own_and_all_files() -> None:
    overrides = parse_overrides("10.0.0.1:3, 10.0.0.2:0, 2001:db8::7:2")
    door = Door(ConnectionLimits.of(100, per_address=1, reserved=90, overrides=overrides))
    for _ in range(3):
        door.enter("10.0.0.1")
    assert door.reason("10.0.0.1") is Refusal.ADDRESS
    assert door.reason("10.0.0.2") is Refusal.ADDRESS
    for host in ("2001:db8::7", "2001:db8::8"):  # one /64 is one address
        door.enter(host)
    assert door.reason("2001:db8::9") is Refusal.ADDRESS
    door.enter("10.0.0.3")
    assert door.reason("10.0.0.3") is Refusal.ADDRESS
    door = Door(ConnectionLimits.of(100, reserved=90, overrides={"10.0.0.1": 9}))
    for host, files in (("10.0.0.1", 10), ("10.0.0.2", 5)):
        group, linked = door.enter(host).group, 1
        while door.admission.may_link(group):
            door.admission.linked(group)
            linked += 1
        assert linked == files
        for _ in range(linked - 1):
            door.admission.unlinked(group)


def test_limits_of_addresses_are_read_as_kafka_writes_them() -> None:
    assert parse_overrides("") == {}
    assert parse_overrides("::ffff:10.0.0.1:5") == {"10.0.0.1": 5}
    assert parse_overrides(" [2001:db8::1]:5,10.0.0.1:0,") == {"2001:db8::/64": 5, "10.0.0.1": 0}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("10.0.0.1", "'10.0.0.1' is not of the form address:limit"),
        ("10.0.0.1:many", "not of the form"),
        ("10.0.0.1:-1", "not of the form"),
        ("10.0.0.1:10000001", "from 0 to 10000000"),
        ("client.example:5", "'client.example' is no IP address, and names are not looked up"),
        ("2001:db8::1", "'2001:db8:' is no IP address"),
        ("10.0.0.1:1,10.0.0.1:2", "has 10.0.0.1 twice"),
        ("[2001:db8::1]:1,[2001:db8::2]:2", "has 2001:db8::/64 twice"),
    ],
)
def test_what_is_no_limit_of_an_address_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        parse_overrides(text)


def test_there_are_no_more_than_the_limit_in_all_and_one_that_leaves_makes_room() -> None:
    door = Door(limits(connections=2))
    first = door.enter("10.0.0.1")
    door.enter("10.0.0.2")
    assert door.reason("10.0.0.3") is Refusal.TOTAL
    first.leave()
    door.enter("10.0.0.3")


def test_who_leaves_twice_leaves_once() -> None:
    door = Door(limits(connections=2))
    seat = door.enter("10.0.0.1")
    door.enter("10.0.0.1")
    seat.leave()
    seat.leave()
    assert door.admission.connections == 1


def test_all_addresses_of_an_ipv6_network_are_one_and_a_mapped_ipv4_address_is_itself() -> None:
    assert address_group("2001:db8::1") == address_group("2001:db8::ffff:1") == "2001:db8::/64"
    assert address_group("2001:db8:0:1::1") != address_group("2001:db8::1")
    assert address_group("fe80::1%eth0") == "fe80::/64"
    assert address_group("::ffff:10.0.0.1") == address_group("10.0.0.1") == "10.0.0.1"
    assert address_group("") == ""
    assert address_group("no:address") == "no:address"


def test_a_principal_has_so_many_connections_whatever_their_addresses() -> None:
    door = Door(limits(per_principal=1))
    first, second = door.enter("10.0.0.1"), door.enter("10.0.0.2")
    assert door.admission.name(first, "User:alice", "10.0.0.1")
    assert door.admission.name(first, "User:alice", "10.0.0.1"), "another login of the same connection"
    assert not door.admission.name(second, "User:alice", "10.0.0.2")
    assert door.admission.name(second, "User:bob", "10.0.0.2")
    first.leave()
    assert door.admission.name(door.enter("10.0.0.3"), "User:alice", "10.0.0.3")
    assert door.refused == [(Refusal.PRINCIPAL, "10.0.0.2")]


def test_clients_that_come_back_all_at_once_are_let_in_and_a_steady_flood_is_not() -> None:
    door = Door(limits(connections=10_000, per_address=10_000, rate=10, files=100_000))
    for _ in range(5 * BURST_S):
        door.enter("10.0.0.1").leave()
    assert door.reason("10.0.0.1") is Refusal.RATE
    door.now += 1
    for _ in range(5):
        door.enter("10.0.0.1").leave()
    assert door.reason("10.0.0.1") is Refusal.RATE


def test_one_address_has_half_of_the_rate() -> None:
    door = Door(limits(connections=10_000, per_address=10_000, rate=10, files=100_000))
    for _ in range(1_000):
        if (seat := door.admission.enter("10.0.0.1")) is not None:
            seat.leave()
    for _ in range(5 * BURST_S):
        door.enter("10.0.0.2").leave()
    assert door.reason("10.0.0.3") is Refusal.RATE, "together they have used all of it"


def test_addresses_are_forgotten_where_there_are_too_many() -> None:
    door = Door(limits(rate=1_000_000))
    for number in range(10_001):
        door.enter(f"10.{number // 65536}.{number // 256 % 256}.{number % 256}").leave()
    assert door.admission.connections == 0
    assert len(door.admission._rates) == 10_000


def test_connections_to_brokers_take_files_too_and_leave_those_that_are_kept_back() -> None:
    door = Door(limits(files=3))
    door.enter("10.0.0.1")
    for _ in range(2):
        assert door.admission.may_link("10.0.0.1")
        door.admission.linked("10.0.0.1")
    assert not door.admission.may_link("10.0.0.1")
    assert door.reason("10.0.0.2") is Refusal.FILES
    door.admission.unlinked("10.0.0.1")
    door.enter("10.0.0.2")


def test_one_address_has_half_of_the_files_with_the_connections_to_brokers_made_for_it() -> None:
    door = Door(limits(files=4, address_files=2))
    door.enter("10.0.0.1")
    assert door.admission.may_link("10.0.0.1")
    door.admission.linked("10.0.0.1")
    assert not door.admission.may_link("10.0.0.1")
    assert door.reason("10.0.0.1") is Refusal.ADDRESS
    door.enter("10.0.0.2")
    assert door.admission.may_link("10.0.0.2")


@pytest.mark.parametrize(("files", "connections", "per_address"), [(1_024, 640, 320), (65_536, 65_024, 32_512)])
def test_without_settings_limits_follow_from_the_open_files(files: int, connections: int, per_address: int) -> None:
    found = ConnectionLimits.of(files)
    assert (found.connections, found.per_address) == (connections, per_address)
    assert found.files == files - reserved_files(files)
    assert found.address_files == found.files // 2


@pytest.mark.parametrize("files", [1, 2, 16, 64, 1_024])
def test_few_files_are_shared_out_too(files: int) -> None:
    found = ConnectionLimits.of(files)
    assert 1 <= found.per_address <= found.connections <= found.files
    assert admin_connections(files) >= 1


def test_settings_say_more_or_less_but_no_more_than_there_are_files() -> None:
    assert ConnectionLimits.of(1_024, connections=10, per_address=20) == ConnectionLimits(10, 10, 0, 0, 640, 640)
    assert ConnectionLimits.of(1_024, connections=10_000, reserved=24).connections == 1_000
    assert ConnectionLimits.of(1_024, per_address=300, per_principal=5, rate=7).per_address == 300


def test_a_login_that_ends_behind_its_connection_takes_no_place_of_its_principal() -> None:
    door = Door(limits(per_principal=1))
    gone = door.enter("10.0.0.1")
    gone.leave()
    assert not door.admission.name(gone, "User:alice", "10.0.0.1")
    assert door.admission.name(door.enter("10.0.0.2"), "User:alice", "10.0.0.2")
    assert door.refused == []
