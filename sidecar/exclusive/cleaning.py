"""Keeps what nodes remember of sequence ids ahead of Kafka's own cleaning of a log.

Compaction must leave records alone until a snapshot has their ids: min.compaction.lag.ms of a compacted topic with ids
is raised (KIP-58), never lowered, and stays if the topic loses its policy. Retention sets how often snapshots are due.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from sidecar.cluster.upstream import KafkaUpstream
from sidecar.dedup.cleaning import LAG, LAG_MS, SETTINGS, Cleaning, lag_needed
from sidecar.exclusive.partitions import Topic
from sidecar.fencing.expiry import KeepAlive, read_keep_alives
from sidecar.protocol.caller import Upstream
from sidecar.protocol.calls.admin import AlterTopicConfig, ConfigResource, DescribeConfigs, Resource
from sidecar.protocol.errors import error_name
from sidecar.telemetry.ownership_reports import OwnershipReports

_TOPICS_PER_CALL: Final = 500


async def read_cleaning(upstream: KafkaUpstream, topics: Sequence[str]) -> dict[str, Cleaning]:
    """Return the settings by which Kafka deletes records of these topics; without those that it does not describe.
    Raises `UpstreamError`.
    """
    found: dict[str, Cleaning] = {}
    for start in range(0, len(topics), _TOPICS_PER_CALL):
        asked = tuple(Resource(ConfigResource.TOPIC, topic) for topic in topics[start : start + _TOPICS_PER_CALL])
        answers = await upstream.ask_any(DescribeConfigs(asked, SETTINGS))
        found |= {each.name: Cleaning.of(answer.values) for each, answer in answers.items() if not answer.error}
    return found


def needed(terms: KeepAlive) -> int:
    """Return the least min.compaction.lag.ms of a topic with ids."""
    return lag_needed(float("inf") if terms.stamped else terms.oldest, terms.interval)


def is_unprotected(topic: Topic) -> bool:
    """Whether a topic has ids, and it was not seen to for how long compaction leaves them alone since it is served."""
    return topic.ids is not None and topic.ids.protected_ms < needed(topic.upkeep.terms)


async def protect_ids(upstream: KafkaUpstream, topics: Iterable[Topic], hooks: OwnershipReports) -> None:
    """Read the cleaning of those topics that have ids; raise min.compaction.lag.ms and set the pace of snapshots. If
    Kafka refuses to raise it, snapshots are due every second. Raises `UpstreamError`.
    """
    with_ids = {topic.name: topic for topic in topics if topic.ids is not None}
    settings = await read_cleaning(upstream, list(with_ids)) if with_ids else {}
    for name, topic in with_ids.items():
        least, ids, cleaning = needed(topic.upkeep.terms), topic.ids, settings.get(name)
        if ids is None:
            continue
        if cleaning is not None:
            ids.unprotected = await _raise_lag(upstream, name, cleaning, least, hooks)
            ids.pace = cleaning.pace(least if ids.unprotected else 0)
        ids.protected_ms = least


async def _raise_lag(
    upstream: Upstream, name: str, cleaning: Cleaning, least: int, hooks: OwnershipReports
) -> str | None:
    """Return why compaction may take ids too soon; None if it may not."""
    if not cleaning.lacks_lag(least):
        return None
    done = await upstream.call(None, AlterTopicConfig(name, LAG, str(least)))
    if not done.error:
        hooks.compaction_lag_raised(name, cleaning.lag_ms or 0, least)
        return None
    problem = (
        f"{LAG} of {name} is {cleaning.lag_ms} and cannot be raised to {least}"
        f" ({done.message or error_name(done.error)}): compaction may take sequence ids before a snapshot has them, and"
        " if the node dies then, the topic stops until an operator decides"
    )
    hooks.compaction_lag_low(name, problem)
    return problem


async def raise_lags(upstream: KafkaUpstream, topics: Sequence[str], hooks: OwnershipReports) -> list[str]:
    """Raise min.compaction.lag.ms of these topics, which get ids, before anything is written to them: at once to what
    all need, then to what their settings require, which takes an answer of every broker. Return what was done, or could
    not be. Raises as `read_keep_alives`.
    """
    if not topics:
        return []
    done = await _raise_lags(upstream, dict.fromkeys(topics, LAG_MS), hooks)
    least = {name: needed(terms) for name, terms in (await read_keep_alives(upstream, topics)).items()}
    done |= await _raise_lags(upstream, {name: lag_ms for name, lag_ms in least.items() if lag_ms > LAG_MS}, hooks)
    return list(done.values())


async def _raise_lags(upstream: KafkaUpstream, least: Mapping[str, int], hooks: OwnershipReports) -> dict[str, str]:
    """Returns, by topic, what was done, or could not be."""
    outcomes: dict[str, str] = {}
    for name, cleaning in (await read_cleaning(upstream, list(least))).items():
        if cleaning.lacks_lag(least[name]):
            done = f"{name} is compacted: its {LAG} was raised from {cleaning.lag_ms} to {least[name]}"
            outcomes[name] = await _raise_lag(upstream, name, cleaning, least[name], hooks) or done
    return outcomes
