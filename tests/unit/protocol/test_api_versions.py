"""ApiVersions against kio, and the table of APIs that it announces."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.gateway.apis.table import APIS, NEWEST, NOT_SERVED, served_versions
from sidecar.protocol import api_versions
from sidecar.protocol.api_versions import ClientSoftware, NamedBroker, VersionRange
from sidecar.protocol.calls.admin import FEATURES, ServedVersions
from sidecar.protocol.messages.cluster import API_VERSIONS
from sidecar.protocol.primitives import MalformedFrameError
from tests.unit.protocol import kio_entities as kio
from tests.unit.protocol.examples import examples

every_version = pytest.mark.parametrize("version", range(6))
_I16 = st.integers(-(2**15), 2**15 - 1)
_RANGES = st.lists(st.builds(VersionRange, _I16, _I16, _I16), max_size=80)


@every_version
@given(data=st.data())
@examples(12)
def test_a_request_tells_the_clients_software_from_version_3_on(version: int, data: st.DataObject) -> None:
    request = data.draw(kio.messages(kio.entity(18, version, "request")))
    frame = kio.request_frame(request)
    software, named = api_versions.decode_request(frame, kio.body_at(), len(frame), version)
    assert named == (NamedBroker(request.cluster_id, request.node_id) if version >= 5 else NamedBroker())
    if version < 3:
        assert software == ClientSoftware()
    else:
        assert software == ClientSoftware(request.client_software_name, request.client_software_version)
        for size in range(kio.body_at(), len(frame)):
            with pytest.raises(MalformedFrameError):
                api_versions.decode_request(frame, kio.body_at(), size, version)


@pytest.mark.parametrize("name", ["", "-a", "a-", "a b", "a\n", "é", "@a/b"])
def test_software_with_other_names_than_brokers_accept_is_told_apart(name: str) -> None:
    assert ClientSoftware("Apache.Kafka-java", "4").is_accepted()
    assert not ClientSoftware(name, "4").is_accepted()
    assert not ClientSoftware("a", name).is_accepted()


@given(junk=st.binary(max_size=30))
def test_junk_raises_nothing_but_malformed(junk: bytes) -> None:
    with contextlib.suppress(MalformedFrameError):
        api_versions.decode_request(junk, 0, len(junk), 3)


@every_version
@given(ranges=_RANGES)
@examples(12)
def test_an_answer_announces_ranges_and_no_features_by_itself(version: int, ranges: list[VersionRange]) -> None:
    frame = api_versions.encode_answer(7, version, ranges)
    answer = kio.answer_of(kio.entity(18, version, "response"), frame)
    assert kio.answer_frame(answer) == frame
    assert answer.error_code.value == 0
    assert [(found.api_key, found.min_version, found.max_version) for found in answer.api_keys] == ranges
    if version >= 3:
        assert (answer.supported_features, answer.finalized_features, answer.finalized_features_epoch) == ((), (), -1)


@pytest.mark.parametrize("version", FEATURES)
@given(data=st.data())
@examples(12)
def test_features_are_announced_as_a_broker_wrote_them_in_that_version(version: int, data: st.DataObject) -> None:
    answer = data.draw(kio.messages(kio.entity(18, version, "response")))
    theirs, call = kio.answer_frame(answer), FEATURES[version]
    assert call.api_version == version
    features = call.answered(API_VERSIONS.decode_answer(theirs, 0, len(theirs), version) | {"error_code": 0})
    frame = api_versions.encode_answer(7, version, [VersionRange(18, 0, 4)], features)
    mine = kio.answer_of(kio.entity(18, version, "response"), frame)
    for name in ("supported_features", "finalized_features", "finalized_features_epoch", "zk_migration_ready"):
        assert getattr(mine, name) == getattr(answer, name), name


def test_features_are_announced_where_a_client_can_use_them() -> None:
    served = [VersionRange(0, 0, 13), VersionRange(26, 0, 5), VersionRange(28, 0, 5)]
    assert api_versions.may_announce_features(served)
    for key, older in ((0, 11), (26, 4), (28, 4)):
        less = [found if found.key != key else VersionRange(key, 0, older) for found in served]
        assert not api_versions.may_announce_features(less)
    assert not api_versions.may_announce_features(served[:2])


def test_an_unknown_version_is_answered_in_version_0_with_the_range_to_fall_back_to() -> None:
    frame = api_versions.encode_unsupported(7, [VersionRange(0, 0, 9), VersionRange(18, 0, 3)])
    answer = kio.answer_of(kio.entity(18, 0, "response"), frame)
    assert answer.error_code.value == 35
    assert [(found.api_key, found.min_version, found.max_version) for found in answer.api_keys] == [(18, 0, 3)]


@pytest.mark.parametrize("key", sorted(APIS), ids=[APIS[key].name for key in sorted(APIS)])
def test_the_table_names_an_api_as_kafka_does_and_knows_where_it_becomes_flexible(key: int) -> None:
    api = APIS[key]
    assert kio.PACKAGES[key] == "".join(f"_{char.lower()}" if char.isupper() else char for char in api.name)[1:]
    assert api.reason
    for version in range(api.first, api.last + 1):
        if kio.has(key, version):
            assert kio.is_flexible(kio.entity(key, version, "request")) == api.is_flexible(version), version


def test_no_key_is_both_served_and_left_out() -> None:
    assert not APIS.keys() & NOT_SERVED.keys()
    assert all(reason for reason in NOT_SERVED.values())


def test_telemetry_is_offered_where_brokers_collect_it() -> None:
    offered = {key: ServedVersions(0, last) for key, last in NEWEST.items() if key not in (71, 72)}
    assert {found.key for found in served_versions(offered)} == APIS.keys() - {71, 72}
    offered |= {key: ServedVersions(0, 0) for key in (71, 72)}
    assert {found.key for found in served_versions(offered)} == APIS.keys()
