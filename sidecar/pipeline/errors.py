"""What a pipeline says where it cannot go on: what is wrong, and what to do about it, in one sentence for a console.

Every message is whole by itself: Spark hands on the text of an error of an executor, and nothing else of it.
"""

from __future__ import annotations

import re
from typing import Any, Final


class PipelineError(Exception):
    """A job cannot go on; the message names what is wrong and what to do."""


class UnreachableError(PipelineError):
    """No broker and no node answered in time."""


class UnknownTopicError(PipelineError):
    """There is no topic of this name, or none that may be seen."""


class OffsetRangeError(PipelineError):
    """Offsets that a log does not hold: in front of its start, lost to retention, or after its end."""


class UsageError(PipelineError):
    """What was asked for makes no sense, whatever Kafka holds."""


class PointError(PipelineError):
    """What was given as a point in time, or as offsets, is none."""


class CorruptLogError(PipelineError):
    """Bytes in a log that are no records of message format v2, or damaged ones."""


_CAUSES: Final = 5
_IN_TEXT: Final = re.compile(r"sidecar\.pipeline\.errors\.(\w+): (.+)")


def pipeline_error_of(error: Exception) -> PipelineError | None:
    """The error of ours that this is, or that one of Spark's has as text, of a data source or an executor; None where
    there is none.
    """
    if isinstance(error, PipelineError):
        return error
    found = _IN_TEXT.findall(str(error))
    if not found:
        return None
    name, message = found[-1]
    kind = {each.__name__: each for each in PipelineError.__subclasses__()}.get(name, PipelineError)
    return kind(message.strip())


def java_of(error: BaseException) -> Any:
    """The exception in the JVM that one of PySpark's or py4j's stands for; None for any other."""
    origin = getattr(error, "_origin", None)
    return origin if origin is not None else getattr(error, "java_exception", None)


def first_line(error: BaseException) -> str:
    """What an error of Spark or Delta says, without the trace after it."""
    java = java_of(error)
    text = str(java.getMessage() or java.toString()) if java is not None else str(error)
    return (text.strip().splitlines() or [type(error).__name__])[0]


def causes(error: BaseException) -> str:
    """What an error of Spark or Delta says and what caused it, a line of each: often only the last one helps."""
    found, java = [first_line(error)], java_of(error)
    while java is not None and len(found) < _CAUSES:
        java = java.getCause()
        line = str(java.getMessage() or "").strip().split("\n")[0] if java is not None else ""
        if line and not any(line in each for each in found):
            found.append(line)
    return ": ".join(found)
