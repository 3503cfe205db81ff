"""Answers as values that can be compared: what may differ between two clusters is left out, or numbered in the order in
which it was seen.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from crc32c import crc32c

from sidecar.protocol.compression import decompress
from tests.sim.kafka.settings import TOPIC_DEFAULTS

_HEADER: Final = Struct(">qiibIhiqqqhii")
_LEFT_OUT: Final = frozenset(
    {
        "throttle_time_ms", "error_message", "cluster_id", "controller_id", "host", "port", "rack", "tags", "client_id",
        "client_host", "documentation", "synonyms", "config_type", "is_sensitive", "read_only", "record_errors",
        "eligible_leader_replicas", "last_known_elr",
    }
)  # fmt: skip
"""Texts, addresses, and what the simulation does not imitate (docs/internals/simulation.md)."""
_TIMES: Final = frozenset({"timestamp", "last_timestamp", "log_append_time_ms", "transaction_start_time_ms"})
_UNORDERED: Final[dict[str, Callable[[Any], Any]]] = {
    "topics": lambda row: str(row.get("name", row.get("topic", ""))),
    "partitions": lambda row: row.get("partition_index", row.get("partition")) if isinstance(row, dict) else row,
    "results_by_partition": lambda row: row["partition_index"],
    "partition_responses": lambda row: row["index"],
    "active_producers": repr,
    "transaction_states": lambda row: row["transactional_id"],
    "groups": lambda row: row["group_id"],
    "brokers": lambda row: row["node_id"],
    "configs": lambda row: row["name"],
    "members": repr,
    "isr_nodes": int,
    "offline_replicas": int,
    "unknown_state_filters": str,
}
"""Lists that Kafka makes from hash tables, and what they are sorted by."""
_TOPIC_ITSELF: Final = 1
"""`ConfigSource.TOPIC_CONFIG`; which of the defaults counts is not compared."""
NOBODYS_ID: Final = b"nobody's id 1234"
_HOUR_MS: Final = 3_600_000


class Plain:
    """Of one side. `began_ms` is the brokers' clock at the beginning of the program."""

    def __init__(self, prefix: str, began_ms: int) -> None:
        self.prefix = prefix
        self.began_ms = began_ms
        self.names: dict[Any, str] = {}
        """Producer ids, topic ids and member ids -> what they are called."""

    def name(self, value: Any, kind: str) -> str:
        """What a value is called from now on, unless it has a name."""
        return self.names.setdefault(value, f"{kind}{sum(each.startswith(kind) for each in self.names.values())}")

    def time(self, value: int) -> int | str:
        """Milliseconds before the beginning, or `now`."""
        if value <= 0:
            return value
        since = value - self.began_ms
        return "now" if 0 <= since < _HOUR_MS else f"{since} ms"

    def answer(self, value: Any, field: str = "") -> Any:
        """See the module."""
        if isinstance(value, dict):
            return {
                name: self.answer(each, name)
                for name, each in value.items()
                if name not in _LEFT_OUT and not (name == "records" and not each)
            }
        if field == "config_source":
            return value == _TOPIC_ITSELF
        if isinstance(value, list):
            rows = [self.answer(each, field) for each in value if not self._is_foreign(each)]
            order = _UNORDERED.get(field)
            return rows if order is None else sorted(rows, key=order)
        if field == "records":
            return self._batches(value)
        if field in _TIMES:
            return self.time(value)
        if field == "coordinator_epoch":
            return min(0, value)
        if isinstance(value, bytes | str | int) and value in self.names and field in _NAMED:
            return self.names[value]
        if field == "topic_id" and value not in (bytes(16), NOBODYS_ID):
            return "of no topic"  # a new id where the request only asked whether a topic could be made
        return value

    def _is_foreign(self, row: Any) -> bool:
        """Of another program, or of the cluster itself: listed because everything is. Or an unimitated setting."""
        if isinstance(row, dict) and "config_source" in row:
            return row["name"] not in TOPIC_DEFAULTS
        if isinstance(row, dict) and "is_internal" in row and row["name"]:
            return not row["name"].startswith(self.prefix)
        if isinstance(row, dict) and row.get("group_id") == "":  # of a client without a group; nothing here has none
            return True
        named = next((row[field] for field in _OWN if row.get(field)), None) if isinstance(row, dict) else None
        return named is not None and not named.startswith(self.prefix)

    def _batches(self, data: bytes) -> list[Any]:
        found: list[Any] = []
        at = 0
        while at + 61 <= len(data):
            (
                base, length, epoch, magic, crc, attributes, last, first_ms, max_ts, pid, producer_epoch, sequence,
                count,
            ) = _HEADER.unpack_from(data, at)  # fmt: skip
            end = at + 12 + length
            if end > len(data):
                break
            section = data[at + 61 : end]
            codec = attributes & 7
            if codec:
                section = bytes(decompress(codec, section, 1 << 24))
            is_control = bool(attributes & 0x20)
            found.append(
                {
                    "offset": base, "leader epoch": epoch, "magic": magic, "crc": crc == crc32c(data[at + 21 : end]),
                    "attributes": attributes, "last": last, "first time": self.time(first_ms),
                    "max time": self.time(max_ts), "producer": self.names.get(pid, pid), "epoch": producer_epoch,
                    "sequence": sequence, "count": count, "records": section[:-5] if is_control else section,
                }
            )  # fmt: skip
            at = end
        return [*found, f"{len(data) - at} bytes more"] if at < len(data) else found


_OWN: Final = ("transactional_id", "group_id", "topic", "topic_name")
_NAMED: Final = frozenset({"producer_id", "topic_id", "member_id", "leader"})
