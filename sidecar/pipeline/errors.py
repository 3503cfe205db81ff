"""The errors of the jobs. A message says in one sentence for a console what is wrong and what to do about it.

Every message is complete by itself: of an executor's error Spark passes on only the text.
"""

from __future__ import annotations

import re
from typing import Any, Final


class PipelineError(Exception):
    """A job cannot continue; the message says what is wrong and what to do."""


class UnreachableError(PipelineError):
    """No broker and no node answered in time."""


class UnknownTopicError(PipelineError):
    """The topic does not exist, or may not be seen."""


class OffsetRangeError(PipelineError):
    """Offsets that a log does not have: before its start, deleted by retention, or after its end."""


class UsageError(PipelineError):
    """The options contradict each other or are invalid, whatever Kafka holds."""


class PointError(PipelineError):
    """The text is neither a point in time nor offsets."""


class CorruptLogError(PipelineError):
    """Damaged bytes in a log, or records that are not of message format v2."""


_CAUSES: Final = 5
_IN_TEXT: Final = re.compile(r"sidecar\.pipeline\.errors\.(\w+): (.+)")


def pipeline_error_of(error: Exception) -> PipelineError | None:
    """The `PipelineError` that `error` is, or whose text an error of Spark (of a data source or an executor) contains;
    None if there is none.
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
    """The JVM exception behind an exception of PySpark or py4j; None for any other."""
    origin = getattr(error, "_origin", None)
    return origin if origin is not None else getattr(error, "java_exception", None)


def first_line(error: BaseException) -> str:
    """The message of an error of Spark or Delta, without the stack trace."""
    java = java_of(error)
    text = str(java.getMessage() or java.toString()) if java is not None else str(error)
    return (text.strip().splitlines() or [type(error).__name__])[0]


def causes(error: BaseException) -> str:
    """The messages of an error of Spark or Delta and of its causes, one line each: often only the last one helps."""
    found, java = [first_line(error)], java_of(error)
    while java is not None and len(found) < _CAUSES:
        java = java.getCause()
        line = str(java.getMessage() or "").strip().split("\n")[0] if java is not None else ""
        if line and not any(line in each for each in found):
            found.append(line)
    return ": ".join(found)
