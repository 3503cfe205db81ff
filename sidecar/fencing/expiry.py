"""How often a fence must be kept alive: a quarter of the shortest time after which a part of Kafka may forget it.

A partition forgets a producer id after producer.id.expiration.ms, the coordinator a transactional id after
transactional.id.expiration.ms (KIP-98, KIP-854). A replica that is rebuilt from the log does not know a fence whose
marker compaction or retention has deleted: delete.retention.ms, retention.ms, segment.ms of the topic.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sidecar.protocol.caller import Upstream
from sidecar.protocol.calls.admin import ConfigResource, DescribeConfigs, Described, Resource
from sidecar.protocol.errors import KafkaError

_OF_BROKERS: Final = " of the brokers"
_EXPIRATION: Final = "producer.id.expiration.ms" + _OF_BROKERS
_HOUR_MS: Final = 3600 * 1000
BROKER_DEFAULTS: Final = {
    "producer.id.expiration.ms": 24 * _HOUR_MS,
    "transactional.id.expiration.ms": 7 * 24 * _HOUR_MS,
}
TOPIC_SETTINGS: Final = ("delete.retention.ms", "retention.ms", "segment.ms")
_TIMESTAMPS: Final = "message.timestamp.type"
_SHARE: Final = 4
_LATE_S: Final = 60.0
"""Tolerance for a late keep-alive and for clocks that differ, in seconds."""
_TOPICS_PER_CALL: Final = 500


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """The longest time between two fences of a topic, in seconds, and the setting that limits it.

    `setting` also names whose setting it is: the brokers' or the topic's. `oldest`: the maximum age of a batch's newest
    record, in seconds, if records carry their producers' times. A partition counts a producer's age from that time, and
    must still know the producer at the next keep-alive. `stamped`: brokers set the time of records
    (message.timestamp.type=LogAppendTime), so any age is allowed. `assumed`: a broker did not return its settings, so
    Kafka's defaults are used.
    """

    interval: float
    setting: str
    assumed: bool = False
    oldest: float = math.inf
    stamped: bool = False


def keep_alive(settings: Mapping[str, int], *, assumed: bool = False, stamped: bool = False) -> KeepAlive:
    """Computes it from the settings in milliseconds; unlimited settings are left out. Pure."""
    setting = min(settings, key=lambda name: settings[name])
    interval = settings[setting] // _SHARE / 1000
    expiration = settings.get(_EXPIRATION, BROKER_DEFAULTS["producer.id.expiration.ms"]) / 1000
    return KeepAlive(interval, setting, assumed, expiration - interval - min(interval, _LATE_S), stamped)


DEFAULT_KEEP_ALIVE: Final = keep_alive({name + _OF_BROKERS: value for name, value in BROKER_DEFAULTS.items()})
"""Used until the settings have been read: from Kafka's defaults."""


async def read_broker_keep_alive(upstream: Upstream) -> KeepAlive:
    """Returns the keep-alive that the brokers' own settings require for every topic. Raises `UpstreamError`."""
    settings, assumed = await _broker_settings(upstream)
    return keep_alive(settings, assumed=assumed)


async def read_keep_alives(upstream: Upstream, topics: Sequence[str]) -> dict[str, KeepAlive]:
    """Returns each topic's keep-alive, from the brokers' settings and its own. Deleted topics are left out.

    Raises `UpstreamError`, and `KafkaError` if Kafka refuses to return a topic's settings (29
    TOPIC_AUTHORIZATION_FAILED).
    """
    settings, assumed = await _broker_settings(upstream)
    found: dict[str, KeepAlive] = {}
    for start in range(0, len(topics), _TOPICS_PER_CALL):
        asked = tuple(Resource(ConfigResource.TOPIC, topic) for topic in topics[start : start + _TOPICS_PER_CALL])
        answers = await upstream.call(None, DescribeConfigs(asked, (*TOPIC_SETTINGS, _TIMESTAMPS)))
        for resource, answer in answers.items():
            if answer.error in _GONE:
                continue
            if answer.error:
                raise KafkaError(answer.error, f"settings of {resource.name}: {answer.message or 'refused'}")
            own = _durations(answer, TOPIC_SETTINGS, f" of {resource.name}")
            stamped = answer.values.get(_TIMESTAMPS) == "LogAppendTime"
            found[resource.name] = keep_alive(settings | own, assumed=assumed, stamped=stamped)
    return found


_GONE: Final = (3,)


async def _broker_settings(upstream: Upstream) -> tuple[dict[str, int], bool]:
    """Returns the lowest value of each setting over all live brokers, and whether a default was assumed."""
    settings: dict[str, int] = {}
    assumed = False
    for broker in await upstream.brokers():
        resource = Resource(ConfigResource.BROKER, str(broker))
        answer = (await upstream.call(broker, DescribeConfigs((resource,), tuple(BROKER_DEFAULTS)))).get(resource)
        own: dict[str, int] = {}
        if answer is None or answer.error:
            assumed = True
        else:
            own = _durations(answer, BROKER_DEFAULTS, _OF_BROKERS)
        for name, default in BROKER_DEFAULTS.items():
            label = name + _OF_BROKERS
            if label not in own:
                assumed = True
            settings[label] = min(settings.get(label, default), own.get(label, default))
    return settings, assumed


def _durations(described: Described, names: Iterable[str], place: str) -> dict[str, int]:
    values = {f"{name}{place}": described.milliseconds(name) for name in names}
    return {label: value for label, value in values.items() if value is not None}
