"""SCRAM's messages: what is read in them, and that nothing else than `SaslError` comes of others."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.security import scram
from sidecar.security.errors import SaslError
from sidecar.security.scram import Hash

PARSERS = [scram.parse_client_first, scram.parse_server_first, scram.parse_client_final, scram.parse_server_final]
each_parser = pytest.mark.parametrize("parse", PARSERS)
names = st.text(min_size=1).filter(lambda name: "\0" not in name and name.isprintable())


@given(names)
def test_a_name_is_read_as_it_was_written(name: str) -> None:
    written = scram.sasl_name(name)
    assert "," not in written
    assert scram.name_of(written) == name


@pytest.mark.parametrize("text", ["a=b", "=2c", "=", "", "a\0b"])
def test_a_name_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SaslError, match="name"):
        scram.name_of(text)


def test_a_first_message_says_who_and_with_what() -> None:
    first = scram.parse_client_first(b"n,a=tim,n=us=2Cer,r=abc,tokenauth=true")
    assert first == ("n,a=tim,", "n=us=2Cer,r=abc,tokenauth=true", "tim", "us,er", "abc", {"tokenauth": "true"})


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"p=tls-unique,,n=user,r=abc", "channel binding"),
        (b"n,x=tim,n=user,r=abc", "authorization id"),
        (b"n,,m=must,n=user,r=abc", "mandatory extension"),
        (b"n,,r=abc,n=user", "come first"),
        (b"n,,n=user", "too short"),
        (b"n,,n=user,r=", "nonce is printable"),
        (b"n,,n=user,r=\xc3\xa4", "nonce is printable"),
        (b"n,,n=user,r=abc,x", "a letter, = and a value"),
        (b"n,,n=\xff,r=abc", "not UTF-8"),
    ],
)
def test_a_first_message_that_is_none_is_refused(message: bytes, why: str) -> None:
    with pytest.raises(SaslError, match=why):
        scram.parse_client_first(message)


@pytest.mark.parametrize("count", ["0", "-1", "4095", "100001", "4096.0", "1e9", "9999999999", "٤٠٩٦"])
def test_iterations_out_of_bounds_are_refused(count: str) -> None:
    with pytest.raises(SaslError, match="iterations"):
        scram.parse_server_first(f"r=abc,s=QQ==,i={count}".encode())


@pytest.mark.parametrize("salt", ["", "A", "QQ", "Q!==", "QQ==\n"])
def test_a_salt_that_is_not_in_base64_is_refused(salt: str) -> None:
    with pytest.raises(SaslError, match="malformed"):
        scram.parse_server_first(f"r=abc,s={salt},i=4096".encode())


def test_a_last_message_ends_with_its_proof() -> None:
    final = scram.parse_client_final(b"c=biws,r=abc,x=y,p=QUI=")
    assert final == ("c=biws,r=abc,x=y", b"n,,", "abc", b"AB")
    with pytest.raises(SaslError, match="proof expected"):
        scram.parse_client_final(b"c=biws,r=abc,p=QUI=,x=y")


@each_parser
@given(data=st.binary(max_size=80))
def test_no_bytes_raise_anything_else(parse: Callable[[bytes], Any], data: bytes) -> None:
    with contextlib.suppress(SaslError):
        parse(data)


parts = st.sampled_from(
    ["n", "y", "", "a=b", "m=x", "n=user", "r=abc", "s=QQ==", "i=4096", "c=biws", "p=QQ==", "v=QQ=="]
)


@each_parser
@given(found=st.lists(parts, max_size=6))
def test_no_mixture_of_parts_raises_anything_else(parse: Callable[[bytes], Any], found: list[str]) -> None:
    with contextlib.suppress(SaslError):
        parse(",".join(found).encode())


@pytest.mark.parametrize("kind", Hash)
def test_a_proof_is_of_one_password_and_one_exchange(kind: Hash) -> None:
    salt = b"0123456789abcdef"
    stored = scram.stored_keys(kind, "pencil", salt, 4096)
    message = scram.auth_message("n=user,r=a", "r=ab,s=,i=4096", "c=biws,r=ab")
    proof = scram.client_proof(kind, scram.client_keys(kind, "pencil", salt, 4096), message)
    assert scram.is_proof(kind, stored, message, proof)
    assert not scram.is_proof(kind, stored, message + b"x", proof)
    assert not scram.is_proof(kind, stored, message, proof[:-1])
    other = scram.client_proof(kind, scram.client_keys(kind, "Pencil", salt, 4096), message)
    assert not scram.is_proof(kind, stored, message, other)


@pytest.mark.parametrize("iterations", [0, -1, scram.MAX_ITERATIONS + 1])
def test_keys_are_not_derived_for_ever(iterations: int) -> None:
    with pytest.raises(ValueError, match="iterations"):
        scram.client_keys(Hash.SCRAM_SHA_256, "pencil", b"salt", iterations)
