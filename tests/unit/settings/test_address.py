import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.settings import Address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:19092", Address("127.0.0.1", 19092)),
        (" kafka-1.example:9092 ", Address("kafka-1.example", 9092)),
        ("[::1]:19092", Address("::1", 19092)),
        ("localhost:0", Address("localhost", 0)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, address: Address):
    assert Address.parse(text) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "kafka",
        ":9092",
        "kafka:",
        "kafka:x",
        "kafka:65536",
        "kafka:-1",
        "::1:9092",
        "http://kafka:9092",
        "a b:1",
        "a:¹",
    ],
)
def test_anything_else_is_no_address(text: str):
    with pytest.raises(ValueError, match=r"is not|has no port|in brackets"):
        Address.parse(text)


@given(st.from_regex(r"[a-z][a-z0-9.-]{0,20}", fullmatch=True) | st.ip_addresses().map(str), st.integers(0, 65_535))
def test_what_is_written_is_read_again(host: str, port: int):
    assert Address.parse(str(Address(host, port))) == Address(host, port)


@pytest.mark.parametrize(("host", "wildcard", "loopback"), [
    ("0.0.0.0", True, False),
    ("::", True, False),
    ("127.0.0.2", False, True),
    ("::1", False, True),
    ("localhost", False, True),
    ("10.0.0.1", False, False),
    ("kafka", False, False),
])  # fmt: skip
def test_wildcard_and_loopback_are_told_apart(host: str, wildcard: bool, loopback: bool):
    address = Address(host, 1)
    assert (address.wildcard, address.loopback) == (wildcard, loopback)
