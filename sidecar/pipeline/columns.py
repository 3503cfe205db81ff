"""Turns the records of Spark's Kafka source into the columns of a table. Pure: data frames to data frames.

No row is ever left out: a key or value that does not match the format is stored unchanged in `corrupt`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructField, StructType

from sidecar.pipeline.errors import PipelineError

PARTITIONABLE: Final = ("topic", "date")
_BROKEN: Final = "__sidecar_broken"
_MS_PER_DAY: Final = 86_400_000


class Format(StrEnum):
    """How keys and values are read."""

    BYTES = "bytes"
    STRING = "string"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Form:
    """The columns of a table: how values are read (`schema` for JSON only), and by which columns the table is
    partitioned.

    Raises `PipelineError` if the format and the schema contradict each other.
    """

    format: Format = Format.BYTES
    schema: StructType | None = None
    partition_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.format is Format.JSON) != (self.schema is not None):
            raise PipelineError("a schema goes with the format json, and json with a schema")
        unknown = [name for name in self.partition_by if name not in PARTITIONABLE]
        if unknown:
            raise PipelineError(f"a table can be partitioned by {' and '.join(PARTITIONABLE)}, not by {unknown[0]}")


def read_schema(text: str) -> StructType:
    """A schema as DDL (`id bigint, name string`) or as Spark writes it in JSON. Raises `PipelineError`.

    Needs a session: DDL is parsed by Spark.
    """
    try:
        is_json = text.lstrip().startswith("{")
        found = StructType.fromJson(json.loads(text)) if is_json else StructType.fromDDL(text)
    except (ParseException, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PipelineError(
            f"the schema {text[:80]!r} is neither DDL nor Spark's JSON ({str(error).strip().splitlines()[0]}), nor the"
            " name of a file with one"
        ) from None
    if not isinstance(found, StructType) or not found.fields:
        raise PipelineError(f"the schema {text[:80]!r} names no column: give it as `id bigint, name string`")
    return found


def records(source: DataFrame, form: Form) -> DataFrame:
    """The columns of a table, from those of `format("kafka")` with headers.

    topic, partition, offset, timestamp, date (UTC, if the table is partitioned by it), key, corrupt, headers, value.
    Keys are binary for `bytes`, else text. `corrupt` is null, or holds the key or value that is not UTF-8 or not JSON
    of the schema; the column that it belongs in is null then.

    Raises `PipelineError` for a schema with types that cannot be read from JSON.
    """
    date = [_date().alias("date")] if "date" in form.partition_by else []
    key, value = _read(form)
    try:
        return source.select("topic", "partition", "offset", "timestamp", *date, *key, "headers", value)
    except AnalysisException as error:
        if form.schema is None:
            raise
        raise PipelineError(
            f"no JSON can be read with the schema {form.schema.simpleString()[:200]} ({_reason(error)}): give columns"
            " of other types"
        ) from None


def _reason(error: AnalysisException) -> str:
    """The error's text without the query that Spark appends to it."""
    return str(error).strip().splitlines()[0].split("SQLSTATE")[0].strip().rstrip(".;")


def _date() -> Column:
    """The day in UTC, independent of the session's time zone."""
    return F.date_from_unix_date(F.floor(F.unix_millis("timestamp") / _MS_PER_DAY).cast("int"))


def _read(form: Form) -> tuple[list[Column], Column]:
    if form.format is Format.BYTES:
        return [F.col("key")], F.col("value")
    key, value = F.col("key").cast("string"), F.col("value").cast("string")
    if form.schema is None:
        value_is_fine, parsed = F.is_valid_utf8(value), value
    else:
        marked = StructType([*form.schema.fields, StructField(_BROKEN, StringType())])
        parsed = F.from_json(value, marked, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BROKEN})
        value_is_fine = F.is_valid_utf8(value) & parsed.isNotNull() & parsed[_BROKEN].isNull()
        parsed = parsed.dropFields(_BROKEN)
    broken_key, broken_value = ~F.is_valid_utf8(key), F.col("value").isNotNull() & ~value_is_fine
    parts = F.struct(F.when(broken_key, F.col("key")).alias("key"), F.when(broken_value, F.col("value")).alias("value"))
    corrupt = F.when(F.coalesce(broken_key, F.lit(False)) | broken_value, parts)
    return (
        [F.when(~broken_key, key).alias("key"), corrupt.alias("corrupt")],
        F.when(~broken_value, parsed).alias("value"),
    )


def behind(rows: DataFrame, begins: Mapping[int, int], ends: Mapping[int, int]) -> DataFrame:
    """The rows of the partitions in `ends`; of those in `begins`, only from that offset on."""
    whole = [partition for partition in ends if partition not in begins]
    kept = F.col("partition").isin(whole) if whole else F.lit(False)
    for partition, begin in begins.items():
        kept |= (F.col("partition") == partition) & (F.col("offset") >= begin)
    return rows.where(kept)
