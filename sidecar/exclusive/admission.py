"""Which batches a governed topic accepts (message format v2, KIP-98); `protocol.batch.read_numbers` is the short form
of it.
"""

from __future__ import annotations

from sidecar.protocol import batch as record_batch
from sidecar.protocol.batch import BatchHeader
from sidecar.protocol.errors import ErrorCode, KafkaError


def checked_header(batch: memoryview) -> BatchHeader:
    """The header of a batch for a governed topic. Raises `KafkaError` with the code that the client gets."""
    header = record_batch.read_header(batch, 0, len(batch))
    if header.size != len(batch):
        raise KafkaError(ErrorCode.INVALID_RECORD, "a Produce request carries exactly one record batch per partition")
    if header.is_special:
        if header.is_transactional:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "governed topics accept no transactional batches")
        raise KafkaError(ErrorCode.INVALID_RECORD, "clients may not write control batches")
    if header.records <= 0 or header.last_offset_delta != header.records - 1:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"{header.records} records with a last offset delta of {header.last_offset_delta}"
        )
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise KafkaError(ErrorCode.INVALID_RECORD, "a producer id without an epoch or a sequence")
    if not record_batch.crc_matches(batch, 0, header.size):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the CRC of the batch does not match its bytes")
    return header
