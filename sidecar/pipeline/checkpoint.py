"""A stream's checkpoint: which export it belongs to, and the offsets that Spark has saved there. It can always be
cleared.

The table itself says what it holds (`ledger`). A checkpoint may not match it, because it was copied, the table was
restored, or retention deleted its offsets. Then it is cleared. Spark's files in it are only read, never changed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from sidecar.pipeline.errors import PipelineError
from sidecar.pipeline.folders import Folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MARK: Final = "sidecar.json"
_DRAFTS: Final = {f".{_MARK}", f"..{_MARK}.crc"}
"""Files that remain if writing the mark was interrupted. Any other file, hidden or not, belongs to somebody else."""


class CheckpointError(PipelineError):
    """The directory is another checkpoint, or something else."""


@dataclass(frozen=True, slots=True)
class CheckpointOwner:
    """What a checkpoint belongs to: the log that is read, and Delta's id of the table that is written."""

    cluster_id: str
    topic: str
    table_id: str


class Checkpoint:
    """The checkpoint at a path, which need not exist yet."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.path = path
        self._folder = Folder(spark, path)

    def check(self, cluster_id: str, topic: str, table: str, table_id: str | None) -> None:
        """Raise `CheckpointError` unless it is free, or belongs to this log and the table at the path `table`.
        `table_id` is None if the table does not exist yet.
        """
        if f"{table.rstrip('/')}/".startswith(f"{self.path.rstrip('/')}/"):
            raise CheckpointError(
                f"the checkpoint {self.path} would hold the table {table}, and is deleted now and then: name another"
                " directory with --checkpoint"
            )
        if self._folder.is_file():
            raise CheckpointError(f"the checkpoint {self.path} is a file: name a directory")
        if not set(self._folder.names(hidden=True) or ()) - _DRAFTS:
            return
        owner = self._owner()
        if owner.cluster_id != cluster_id:
            raise CheckpointError(
                f"the checkpoint {self.path} is of the Kafka cluster {owner.cluster_id}, not {cluster_id}: name another"
                " one with --checkpoint"
            )
        if owner.topic != topic:
            raise CheckpointError(
                f"the checkpoint {self.path} is of the topic {owner.topic}, not {topic}: name another one with"
                " --checkpoint"
            )
        if owner.table_id != table_id:
            raise CheckpointError(
                f"the checkpoint {self.path} is of another table than the one that is written: delete it if that table"
                " is gone, or name another one with --checkpoint"
            )

    def _owner(self) -> CheckpointOwner:
        try:
            return CheckpointOwner(**json.loads(self._folder.read(_MARK) or ""))
        except (ValueError, TypeError):
            raise CheckpointError(
                f"{self.path} holds something that is no checkpoint of an export: name another directory with"
                " --checkpoint"
            ) from None

    def begin(self, owner: CheckpointOwner) -> None:
        """Clear it and write its owner, without any offsets."""
        self._folder.delete()
        self._folder.write(json.dumps(asdict(owner)), _MARK)

    def position(self) -> dict[int, int] | None:
        """The offsets with which the stream's next batch begins; None if it has not begun."""
        planned = _numbers(self._folder.names("offsets"))
        if not planned:
            return self._offsets("sources", "0", "0")
        done = set(_numbers(self._folder.names("commits")))
        newest = max(planned)
        return self._ends(newest if newest in done else newest - 1)

    def batch(self, number: int) -> tuple[dict[int, int], dict[int, int]]:
        """The offsets with which a batch begins, and the offsets before which it ends. A new partition has no
        beginning.
        """
        begins, ends = self._ends(number - 1), self._offsets("offsets", str(number))
        if begins is None or ends is None:
            raise CheckpointError(f"the checkpoint {self.path} has lost what it knew of batch {number}: delete it")
        return begins, ends

    def _ends(self, number: int) -> dict[int, int] | None:
        return self._offsets("offsets", str(number)) if number >= 0 else self._offsets("sources", "0", "0")

    def _offsets(self, *below: str) -> dict[int, int] | None:
        """Read Spark's format: a version, for a batch its settings, and on the last line `{"topic": {"0": 5}}`."""
        text = self._folder.read(*below)
        if text is None:
            return None
        try:
            (partitions,) = json.loads(text.strip("\0\n ").splitlines()[-1].lstrip("\0")).values()
            return {int(partition): int(offset) for partition, offset in partitions.items()}
        except (ValueError, AttributeError, IndexError):
            raise CheckpointError(f"{self.path}/{'/'.join(below)} cannot be read: delete the checkpoint") from None


def _numbers(names: list[str] | None) -> list[int]:
    return [int(name) for name in names or () if name.isdigit()]
