"""A stream's checkpoint: whose it is, and which offsets Spark has written down there. It is a convenience, no more.

The table itself says what it holds (`ledger`). A checkpoint that does not fit to it, because it was copied, the
table restored, or retention went past it, is begun anew. Spark's files in it are read and never changed.
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
"""What is left where the mark was not finished; any other file is somebody's, hidden ones too."""


class CheckpointError(PipelineError):
    """A directory that is the checkpoint of something else."""


@dataclass(frozen=True, slots=True)
class CheckpointOwner:
    """Whose a checkpoint is: the log that is read, and Delta's id of the table that is written."""

    cluster_id: str
    topic: str
    table_id: str


class Checkpoint:
    """The checkpoint at a path, which need not be there yet."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.path = path
        self._folder = Folder(spark, path)

    def check(self, cluster_id: str, topic: str, table: str, table_id: str | None) -> None:
        """Raise `CheckpointError` unless it is free or that of the table at the path `table` and only that; `table_id`
        is None where there is none yet.
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
        """Make it anew, without any offsets."""
        self._folder.delete()
        self._folder.write(json.dumps(asdict(owner)), _MARK)

    def position(self) -> dict[int, int] | None:
        """Where the stream goes on: the offsets that its next batch begins with; None where it has not begun."""
        planned = _numbers(self._folder.names("offsets"))
        if not planned:
            return self._offsets("sources", "0", "0")
        done = set(_numbers(self._folder.names("commits")))
        newest = max(planned)
        return self._ends(newest if newest in done else newest - 1)

    def batch(self, number: int) -> tuple[dict[int, int], dict[int, int]]:
        """The offsets that a batch begins with and those it ends in front of. A new partition has no beginning."""
        begins, ends = self._ends(number - 1), self._offsets("offsets", str(number))
        if begins is None or ends is None:
            raise CheckpointError(f"the checkpoint {self.path} has lost what it knew of batch {number}: delete it")
        return begins, ends

    def _ends(self, number: int) -> dict[int, int] | None:
        return self._offsets("offsets", str(number)) if number >= 0 else self._offsets("sources", "0", "0")

    def _offsets(self, *below: str) -> dict[int, int] | None:
        """Spark's own notation: a version, for a batch its settings, and on the last line `{"topic": {"0": 5}}`."""
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
