"""The options of `format("sidecar")`, and the range of each partition that they select in the topic. Pure.

Names are case-insensitive, as in Spark. An unknown option is refused: if a range were silently ignored, an audit would
judge the wrong part of a log.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sidecar.pipeline.errors import OffsetRangeError, PipelineError
from sidecar.pipeline.security import OPTIONS as SECURITY
from sidecar.pipeline.source.batches import Headers

RECORDS: Final = "records"
RUNS: Final = "runs"
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_NAMES: Final = (
    "bootstrap.servers", "topic", "view", "partitions", "startingOffsets", "endingOffsets", "splitOffsets", "columns",
    "sequenceIdHeader", "producerNameHeader", *SECURITY,
)  # fmt: skip

_USUAL: Final = Headers()

Offsets = dict[int, int]


@dataclass(frozen=True, slots=True)
class Options:
    """Options, checked as far as that is possible without Kafka. Offsets are None for the log's start, or its present
    end; `columns` and `partitions` are None for all of them.
    """

    bootstrap: str
    topic: str
    view: str = RECORDS
    starts: Offsets | None = None
    ends: Offsets | None = None
    split_offsets: int = 1_000_000
    columns: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    headers: Headers = _USUAL
    security: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    @classmethod
    def of(cls, given: Mapping[str, str], columns: Mapping[str, Sequence[str]]) -> Options:
        """Parse options; `columns` are those of each view. Raises `PipelineError` for an option that is unknown,
        missing or wrong.
        """
        known = {name.lower(): name for name in _NAMES}
        for name in given:
            if name.lower() not in known:
                raise PipelineError(f"unknown option {name}: there are {', '.join(_NAMES)}")
        found = {known[name.lower()]: value for name, value in given.items()}
        for name in ("bootstrap.servers", "topic"):
            if not found.get(name):
                raise PipelineError(f"option {name} is missing")
        view = found.get("view", RECORDS).lower()
        if view not in columns:
            raise PipelineError(f"option view is {view!r}: it is one of {', '.join(columns)}")
        return cls(
            found["bootstrap.servers"],
            found["topic"],
            view,
            _offsets("startingOffsets", found.get("startingOffsets", EARLIEST), EARLIEST),
            _offsets("endingOffsets", found.get("endingOffsets", LATEST), LATEST),
            _positive("splitOffsets", found.get("splitOffsets", "1000000")),
            _columns(found.get("columns"), columns[view]),
            _partitions(found.get("partitions")),
            Headers(
                _header("sequenceIdHeader", found.get("sequenceIdHeader"), _USUAL.sequence_id),
                _header("producerNameHeader", found.get("producerNameHeader"), _USUAL.producer_name),
            ),
            {name: found[name] for name in SECURITY if name in found},
        )


def _header(name: str, text: str | None, usual: bytes) -> bytes:
    if text is None:
        return usual
    if not text:
        raise PipelineError(f"option {name} is empty: name a record header")
    return text.encode()


def _positive(name: str, text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise PipelineError(f"option {name} is {text!r}: a number of at least 1")
    return int(text)


def _columns(text: str | None, known: Iterable[str]) -> frozenset[str] | None:
    if text is None:
        return None
    named = frozenset(each.strip() for each in text.split(",") if each.strip())
    unknown = sorted(named.difference(known))
    if unknown or not named:
        raise PipelineError(f"option columns names {', '.join(unknown) or 'none'}: there are {', '.join(known)}")
    return named


def _partitions(text: str | None) -> frozenset[int] | None:
    if text is None:
        return None
    named = [each.strip() for each in text.split(",")] if text.strip() else []
    if not all(each.isascii() and each.isdigit() for each in named):
        raise PipelineError(f"option partitions is {text!r}: numbers with commas between them, 0,1,2")
    return frozenset(map(int, named))


def _offsets(name: str, text: str, word: str) -> Offsets | None:
    if text.strip().lower() == word:
        return None
    wrong = PipelineError(
        f'option {name} is {text!r}: {word}, or JSON with the offset of each partition, {{"0": 5, "1": 0}}'
    )
    try:
        found = json.loads(text, object_pairs_hook=_once)
    except ValueError as error:
        raise PipelineError(f"{wrong} ({error})") from None
    if not isinstance(found, dict) or not all(_is_offset(*pair) for pair in found.items()):
        raise wrong
    return {int(partition): offset for partition, offset in found.items()}


def _is_offset(partition: str, offset: Any) -> bool:
    is_plain = partition.isdecimal() and partition == str(int(partition))
    return is_plain and isinstance(offset, int) and not isinstance(offset, bool) and 0 <= offset < 2**63


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a partition is named twice")
    return found


def ranges(wanted: Options, earliest: Offsets, latest: Offsets) -> dict[int, tuple[int, int]]:
    """The range of offsets to read of each partition; `earliest` and `latest` are the log's.

    Raises `PipelineError` if partitions are missing or unknown, `OffsetRangeError` if one does not have such offsets.
    """
    topic, only = wanted.topic, wanted.partitions
    if only is not None:
        _check_known(topic, "partitions", only, latest)
        latest = {index: offset for index, offset in latest.items() if index in only}
    for name, named in (("startingOffsets", wanted.starts), ("endingOffsets", wanted.ends)):
        if named is not None:
            _check_named(topic, name, named, latest, only)
    begin = earliest if wanted.starts is None else wanted.starts
    stop = latest if wanted.ends is None else wanted.ends
    found = {index: (begin[index], stop[index]) for index in sorted(latest)}
    for index, (start, end) in found.items():
        _check_range(f"{topic}-{index}", start, end, earliest[index], latest[index])
    return found


def _check_named(topic: str, option: str, named: Offsets, there: Offsets, only: frozenset[int] | None) -> None:
    missing, unread = sorted(set(there) - set(named)), sorted(set(named) - set(there))
    if unread and only is not None:
        raise PipelineError(f"option {option} names partitions that option partitions does not: {_listed(unread)}")
    _check_known(topic, option, named, there)
    if missing:
        raise PipelineError(f"option {option} has to name every partition of {topic}: {_listed(missing)} missing")


def _check_known(topic: str, option: str, named: Iterable[int], there: Offsets) -> None:
    unknown = sorted(set(named) - set(there))
    if unknown:
        raise PipelineError(
            f"option {option} names partitions that {topic} has not: {_listed(unknown)}; it has 0 to {max(there)}"
        )


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:10])) + (f" and {len(numbers) - 10} more" if len(numbers) > 10 else "")


def _check_range(where: str, start: int, end: int, earliest: int, latest: int) -> None:
    if start < earliest:
        raise OffsetRangeError(
            f"offset {start} of {where} is lost to retention: its log begins at {earliest}. Begin there, or behind it"
        )
    if end > latest:
        raise OffsetRangeError(f"offset {end} of {where} is behind its end, {latest}")
    if start > end:
        raise OffsetRangeError(
            f"{where} is to be read from offset {start} to {end}: the end lies in front of the start"
        )


def splits(start: int, end: int, offsets: int) -> list[tuple[int, int]]:
    """The range in pieces of at most `offsets` offsets; no pieces if it is empty."""
    return [(at, min(end, at + offsets)) for at in range(start, end, offsets)]
