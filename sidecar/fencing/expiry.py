"""How often a fence must be kept alive: a quarter of the shortest time after which a part of Kafka may forget it.

A partition forgets a producer id after producer.id.expiration.ms, the coordinator a transactional id after
transactional.id.expiration.ms (KIP-98, KIP-854). A replica that is rebuilt from the log does not know a fence whose
marker compaction or retention has deleted: delete.retention.ms, retention.ms, segment.ms of the topic. Kafka uses the
first only on compacted topics, the second only where cleanup.policy contains delete.

Users set these to anything, 0 included, so each has a floor: no topic is fenced without a pause. Below the floor of a
topic's setting the fence has to be renewed by event (`sidecar.writing.upkeep`), and people are warned (`short`).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sidecar.protocol.caller import Upstream
from sidecar.protocol.calls.admin import ConfigResource, DescribeConfigs, Described, Resource
from sidecar.protocol.errors import KafkaError

_OF_BROKERS: Final = " of the brokers"
_EXPIRATION: Final = "producer.id.expiration.ms"
_HOUR_MS: Final = 3600 * 1000
BROKER_DEFAULTS: Final = {
    _EXPIRATION: 24 * _HOUR_MS,
    "transactional.id.expiration.ms": 7 * 24 * _HOUR_MS,
}
TOPIC_SETTINGS: Final = {"delete.retention.ms": "compact", "retention.ms": "delete", "segment.ms": ""}
"""By setting, the cleanup.policy without which Kafka does not use it; empty: it always does."""
_POLICY: Final = "cleanup.policy"
_TIMESTAMPS: Final = "message.timestamp.type"
_SHARE: Final = 4
TOPIC_FLOOR_S: Final = 300.0
"""No keep-alive is more frequent because of a topic's own settings, in seconds: each writes a marker to every partition
for every slot, and with a small segment.ms begins a segment.
"""
BROKER_FLOOR_S: Final = 0.5
"""No keep-alive is more frequent because of the brokers' settings, in seconds. The partitions of a broker that forgets
producers sooner than four times this are not fenced all the time; `doctor` fails long before.
"""
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
    Kafka's defaults are used. `short`: the topic's settings that delete a marker before the next keep-alive, as
    `retention.ms=1000`.
    """

    interval: float
    setting: str
    assumed: bool = False
    oldest: float = math.inf
    stamped: bool = False
    short: tuple[str, ...] = ()


def keep_alive(
    brokers: Mapping[str, int],
    topic: Mapping[str, int] | None = None,
    *,
    name: str = "",
    assumed: bool = False,
    stamped: bool = False,
) -> KeepAlive:
    """Computes it from the settings of the brokers and of the topic `name`, in milliseconds; unlimited settings are
    left out. Pure.
    """
    least = min(brokers, key=lambda setting: brokers[setting])
    interval, limit = max(brokers[least] // _SHARE / 1000, BROKER_FLOOR_S), least + _OF_BROKERS
    own = topic or {}
    short = tuple(f"{setting}={value}" for setting, value in own.items() if value < _SHARE * 1000 * TOPIC_FLOOR_S)
    if own:
        least = min(own, key=lambda setting: own[setting])
        of_topic = max(own[least] // _SHARE / 1000, TOPIC_FLOOR_S)
        if of_topic < interval:
            interval, limit = of_topic, f"{least} of {name}"
    expiration = brokers.get(_EXPIRATION, BROKER_DEFAULTS[_EXPIRATION]) / 1000
    oldest = max(0.0, expiration - interval - min(interval, _LATE_S))
    return KeepAlive(interval, limit, assumed, oldest, stamped, short)


def settings_in_use(policy: str | None) -> list[str]:
    """Return which of `TOPIC_SETTINGS` Kafka uses under a cleanup.policy; all if it is unknown (None). Pure."""
    policies = None if policy is None else [each.strip() for each in policy.split(",")]
    return [setting for setting, of in TOPIC_SETTINGS.items() if policies is None or not of or of in policies]


DEFAULT_KEEP_ALIVE: Final = keep_alive(BROKER_DEFAULTS)
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
        answers = await upstream.call(None, DescribeConfigs(asked, (*TOPIC_SETTINGS, _POLICY, _TIMESTAMPS)))
        for resource, answer in answers.items():
            if answer.error in _GONE:
                continue
            if answer.error:
                raise KafkaError(answer.error, f"settings of {resource.name}: {answer.message or 'refused'}")
            own = _durations(answer, settings_in_use(answer.values.get(_POLICY)))
            stamped = answer.values.get(_TIMESTAMPS) == "LogAppendTime"
            found[resource.name] = keep_alive(settings, own, name=resource.name, assumed=assumed, stamped=stamped)
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
            own = _durations(answer, BROKER_DEFAULTS)
        for name, default in BROKER_DEFAULTS.items():
            if name not in own:
                assumed = True
            settings[name] = min(settings.get(name, default), own.get(name, default))
    return settings, assumed


def _durations(described: Described, names: Iterable[str]) -> dict[str, int]:
    values = {name: described.milliseconds(name) for name in names}
    return {name: value for name, value in values.items() if value is not None}
