"""The servers every other integration test runs on are what they claim to be."""

import pytest
from redis import Redis

from sidecar.local.probe import ask_kafka
from tests.services import Services

pytestmark = pytest.mark.smoke


def test_kafka_serves_its_metadata(services: Services) -> None:
    host, port = services.kafka_bootstrap.split(",")[0].rsplit(":", 1)
    view = ask_kafka(host, int(port))
    assert view is not None
    assert view.controller in view.brokers


def test_redis_keeps_what_it_is_told(services: Services, unique) -> None:
    key = unique("key")
    with Redis.from_url(services.redis_url) as redis:
        redis.set(key, "value", ex=60)
        assert redis.get(key) == b"value"
        policy = redis.config_get("maxmemory-policy")
    assert isinstance(policy, dict)
    if services.backend != "external":
        assert policy == {"maxmemory-policy": "noeviction"}
