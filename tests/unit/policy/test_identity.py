"""The client.id as clients write it: `name(;key=value)*`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.ownership import AccessMode
from sidecar.policy.identity import parse
from sidecar.protocol.errors import ErrorCode, KafkaError

LARGEST = 2**63 - 1


@pytest.mark.parametrize(
    ("raw", "name", "mode", "generation"),
    [
        (b"", "", None, None),
        (b"billing", "billing", None, None),
        (b"billing;", "billing", None, None),
        (b"billing;;;", "billing", None, None),
        (b"billing;mode=shared", "billing", AccessMode.SHARED, None),
        (b"billing;mode=exclusive", "billing", AccessMode.EXCLUSIVE, None),
        (b"billing;mode=wait_for_exclusive", "billing", AccessMode.WAIT_FOR_EXCLUSIVE, None),
        (b"billing;mode=exclusive_with_fencing", "billing", AccessMode.EXCLUSIVE_WITH_FENCING, None),
        (b"billing;generation=0", "billing", None, 0),
        (b"billing;generation=7;mode=exclusive", "billing", AccessMode.EXCLUSIVE, 7),
        (b"billing;generation=9223372036854775807", "billing", None, LARGEST),
        (b"billing;generation=007", "billing", None, 7),
        (b"billing;mode=exclusive;-1", "billing", AccessMode.EXCLUSIVE, None),
        (b"billing;anything goes;mode=exclusive", "billing", AccessMode.EXCLUSIVE, None),
        (b";mode=exclusive", "", AccessMode.EXCLUSIVE, None),
        (b"a=b", "a=b", None, None),
        (b"mode=exclusive", "mode=exclusive", None, None),
        ("кассы;mode=exclusive".encode(), "кассы", AccessMode.EXCLUSIVE, None),
        (b"with blanks and / and \x01;mode=exclusive", "with blanks and / and \x01", AccessMode.EXCLUSIVE, None),
    ],
)
def test_name_mode_and_generation(raw: bytes, name: str, mode: AccessMode | None, generation: int | None) -> None:
    found = parse(raw)
    assert (found.raw, found.name, found.mode, found.generation) == (raw, name, mode, generation)


@pytest.mark.parametrize(
    ("raw", "named"),
    [
        (b"x;mode=", "mode ''"),
        (b"x;mode=Exclusive", "'Exclusive'"),
        (b"x;mode=EXCLUSIVE", "'EXCLUSIVE'"),
        (b"x;mode= exclusive", "' exclusive'"),
        (b"x;mode=exclusive ", "'exclusive '"),
        (b"x;mode=exclusive=1", "'exclusive=1'"),
        (b"x;mode=exclusive-1", "'exclusive-1'"),
        (b"x;Mode=exclusive", "'Mode'"),
        (b"x; mode=exclusive", "' mode'"),
        (b"x;=exclusive", "''"),
        (b"x;acks=all", "'acks'"),
        (b"x;generation=", "generation ''"),
        (b"x;generation=-1", "'-1'"),
        (b"x;generation=+1", "'[+]1'"),
        (b"x;generation=1.0", "'1.0'"),
        (b"x;generation=1_000", "'1_000'"),
        (b"x;generation= 1", "' 1'"),
        ("x;generation=\u0661".encode(), "\u0661"),
        (b"x;generation=9223372036854775808", "9223372036854775808"),
        (b"x;generation=10000000000000000000000", "10000000000000000000000"),
        (b"x;mode=exclusive;generation=x", "'x'"),
        (b"\xff\xfe", "UTF-8"),
        (b"billing\xff;mode=exclusive", "UTF-8"),
    ],
)
def test_what_is_unknown_is_refused_by_its_name_and_never_falls_back_to_sharing(raw: bytes, named: str) -> None:
    with pytest.raises(KafkaError, match=named) as refused:
        parse(raw)
    assert refused.value.code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("name", "is_named"),
    [
        ("", False),
        ("producer-1", False),
        ("producer-12", False),
        ("rdkafka", False),
        ("sarama", False),
        ("kgo", False),
        ("kafkajs", False),
        ("aiokafka-producer-1", False),
        ("aiokafka-", False),
        ("kafka-python-producer-1", False),
        ("producer", True),
        ("producer-", True),
        ("producer-1a", True),
        ("my-producer-1", True),
        ("rdkafka2", True),
        ("Sarama", True),
        ("aiokafka", True),
        ("billing", True),
    ],
)
def test_default_names_of_libraries_are_no_names(name: str, is_named: bool) -> None:
    assert parse(name.encode()).is_named is is_named


def test_only_a_client_id_with_settings_looks_different_upstream() -> None:
    assert not parse(b"billing").has_settings
    assert parse(b"billing;mode=exclusive").has_settings
    assert parse(b"billing;").has_settings


@given(st.binary(max_size=60) | st.text(alphabet="abc;=modexclusivgenrat0123456789", max_size=40).map(str.encode))
def test_any_bytes_are_a_client_id_or_a_refusal(raw: bytes) -> None:
    refusal: KafkaError | None = None
    found = None
    try:
        found = parse(raw)
    except KafkaError as error:
        refusal = error
    if found is None:
        assert refusal is not None
        assert (refusal.code, bool(refusal.message)) == (ErrorCode.INVALID_REQUEST, True)
    else:
        assert found.name.encode() == raw.split(b";")[0]
        assert found.generation is None or 0 <= found.generation <= LARGEST


@given(
    st.text().filter(lambda name: ";" not in name),
    st.none() | st.sampled_from(AccessMode),
    st.none() | st.integers(0, LARGEST),
    st.lists(st.text(alphabet="-_ 0123456789abc", max_size=5), max_size=3),
)
def test_what_is_asked_is_what_is_read(
    name: str, mode: AccessMode | None, generation: int | None, appended: list[str]
) -> None:
    settings = [f"mode={mode.value}"] if mode is not None else []
    settings += [f"generation={generation}"] if generation is not None else []
    found = parse(";".join([name, *settings, *appended]).encode())
    assert (found.name, found.mode, found.generation) == (name, mode, generation)


@pytest.mark.parametrize("setting", ["mode=exclusive;mode=shared", "generation=1;generation=1"])
def test_a_setting_that_is_given_twice_is_refused(setting: str) -> None:
    with pytest.raises(KafkaError, match="is given twice") as caught:
        parse(f"billing;{setting}".encode())
    assert caught.value.code == ErrorCode.INVALID_REQUEST
