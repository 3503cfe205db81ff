from __future__ import annotations

from uuid import UUID

import pytest

from sidecar.cluster.resolver import NameResolver, Source, TopicKind, is_legal


@pytest.mark.parametrize("name", [b"orders", b"a.b_c-D9", b"x" * 249, b"__consumer_offsets", b"..."])
def test_a_name_that_kafka_allows_is_legal(name: bytes) -> None:
    assert is_legal(name)


@pytest.mark.parametrize("name", [b"", b"x" * 250, b"a b", b"a/b", "größe".encode(), b"\xff\xfe", b"orders\n"])
def test_a_name_that_no_topic_can_have_is_not(name: bytes) -> None:
    assert not is_legal(name)


def test_a_name_is_told_apart_by_policy_and_prefix() -> None:
    resolver = NameResolver()
    assert resolver.kind(b"orders") is TopicKind.ORDINARY
    resolver.set_policies(["orders"], ["payments."])
    kinds = {
        b"orders": TopicKind.GOVERNED,
        b"orders2": TopicKind.ORDINARY,
        b"payments.eu": TopicKind.GOVERNED,
        b"payments": TopicKind.ORDINARY,
        b"__sidecar_default": TopicKind.INTERNAL,
        b"__consumer_offsets": TopicKind.ORDINARY,
    }
    assert {name: resolver.kind(name) for name in kinds} == kinds


def test_a_policy_that_is_gone_governs_no_more() -> None:
    resolver = NameResolver()
    resolver.set_policies(["orders"], [])
    assert resolver.kind(b"orders") is TopicKind.GOVERNED
    resolver.set_policies([], [])
    assert resolver.kind(b"orders") is TopicKind.ORDINARY


def test_a_prefix_of_everything_spares_the_topics_of_kafka_itself() -> None:
    resolver = NameResolver()
    resolver.set_policies([], [""])
    assert resolver.kind(b"orders") is TopicKind.GOVERNED
    assert resolver.kind(b"__consumer_offsets") is TopicKind.ORDINARY
    assert resolver.kind(b"__sidecar_default_events") is TopicKind.INTERNAL


def test_what_is_remembered_of_names_is_bounded() -> None:
    resolver = NameResolver()
    for number in range(150_000):
        resolver.kind(b"%d" % number)
    assert len(resolver.kinds) <= 100_000


def test_a_shadow_is_one_whatever_policy_covers_its_name() -> None:
    resolver = NameResolver()
    resolver.set_policies(["audit"], ["orders"])
    source = Source(b"orders", UUID(int=7))
    resolver.set_shadows({b"audit": source, b"orders-copy": source, b"making": None})
    assert {resolver.kind(name) for name in (b"audit", b"orders-copy", b"making")} == {TopicKind.SHADOW}
    assert resolver.shadows_of(b"orders") == [b"audit", b"orders-copy"]
    assert [resolver.source(name) for name in (b"audit", b"making", b"orders")] == [source, None, None]
    resolver.set_shadows({})
    assert resolver.kind(b"audit") is TopicKind.GOVERNED
    assert not resolver.has_shadows


def test_names_that_no_topic_can_have_are_not_remembered() -> None:
    resolver = NameResolver()
    resolver.set_policies([], ["o"])
    names = [b"o" * 249, b"o" * 250, b"__sidecar_" + b"x" * 32_000]
    kinds = [TopicKind.GOVERNED, TopicKind.ORDINARY, TopicKind.INTERNAL]
    assert [resolver.kind(name) for name in names] == kinds
    assert [*resolver.kinds] == names[:1]


def test_what_clients_may_not_change_says_why() -> None:
    refused = {kind for kind in TopicKind if kind.change_refused is not None}
    assert refused == {TopicKind.SHADOW, TopicKind.INTERNAL}
    assert {kind.change_refused.code for kind in refused if kind.change_refused} == {29}
