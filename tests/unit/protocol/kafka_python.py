"""kafka-python's codecs and batches; importing them warns of what its package does on Python 3.11 and 3.12."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import codec
    from kafka.record.default_records import DefaultRecordBatchBuilder

__all__ = ["DefaultRecordBatchBuilder", "codec"]
