"""Cases of the calls to a transaction coordinator and of their witnesses."""

from __future__ import annotations

from kio.schema.add_partitions_to_txn.v3 import request as add_request
from kio.schema.add_partitions_to_txn.v3 import response as add_response
from kio.schema.describe_producers.v0 import request as producers_request
from kio.schema.describe_producers.v0 import response as producers_response
from kio.schema.end_txn.v3 import request as end_request
from kio.schema.end_txn.v3 import response as end_response
from kio.schema.errors import ErrorCode as KioError
from kio.schema.init_producer_id.v4 import request as init_request
from kio.schema.init_producer_id.v4 import response as init_response
from kio.schema.write_txn_markers.v1 import request as markers_request
from kio.schema.write_txn_markers.v1 import response as markers_response

from sidecar.protocol.calls.transactions import (
    ActiveProducer,
    AddPartitionsToTxn,
    DescribeProducers,
    EndTxn,
    InitializedProducer,
    InitProducerId,
    Marker,
    PartitionProducers,
    WriteTxnMarkers,
)
from sidecar.protocol.ids import TopicPartition
from tests.unit.protocol.call_case import NO_THROTTLE, PARTITION, SECOND, STAMP, Case


def init_case() -> Case:
    return Case(
        InitProducerId("sidecar.default.orders", 60_000, STAMP),
        init_request.InitProducerIdRequest(
            transactional_id="sidecar.default.orders",
            transaction_timeout=60 * SECOND,
            producer_id=STAMP.producer_id,
            producer_epoch=STAMP.epoch,
        ),
        init_response.InitProducerIdResponse(
            throttle_time=SECOND, error_code=KioError.none, producer_id=STAMP.producer_id, producer_epoch=STAMP.epoch
        ),
        InitializedProducer(0, STAMP),
    )


def add_partitions_case() -> Case:
    result = add_response.AddPartitionsToTxnPartitionResult
    return Case(
        AddPartitionsToTxn("tid", STAMP, {"orders": (0, 1, 499), "__sidecar_default": (0,)}),
        add_request.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="tid",
            v3_and_below_producer_id=STAMP.producer_id,
            v3_and_below_producer_epoch=STAMP.epoch,
            v3_and_below_topics=(
                add_request.AddPartitionsToTxnTopic(name="orders", partitions=(0, 1, 499)),
                add_request.AddPartitionsToTxnTopic(name="__sidecar_default", partitions=(0,)),
            ),
        ),
        add_response.AddPartitionsToTxnResponse(
            throttle_time=NO_THROTTLE,
            results_by_topic_v3_and_below=(
                add_response.AddPartitionsToTxnTopicResult(
                    name="orders",
                    results_by_partition=(
                        result(partition_index=0, partition_error_code=KioError.none),
                        result(partition_index=499, partition_error_code=KioError.producer_fenced),
                    ),
                ),
            ),
        ),
        {TopicPartition("orders", 0): 0, TopicPartition("orders", 499): 90},
    )


def end_case() -> Case:
    return Case(
        EndTxn("tid", STAMP),
        end_request.EndTxnRequest(
            transactional_id="tid", producer_id=STAMP.producer_id, producer_epoch=STAMP.epoch, committed=False
        ),
        end_response.EndTxnResponse(throttle_time=NO_THROTTLE, error_code=KioError.concurrent_transactions),
        51,
    )


def describe_producers_case() -> Case:
    answered = producers_response.PartitionResponse(
        partition_index=3,
        error_code=KioError.none,
        active_producers=(
            producers_response.ProducerState(
                producer_id=STAMP.producer_id,
                producer_epoch=STAMP.epoch,
                last_sequence=41,
                last_timestamp=1_700_000_000_123,
                coordinator_epoch=5,
                current_txn_start_offset=-1,
            ),
        ),
    )
    refused = producers_response.PartitionResponse(
        partition_index=4, error_code=KioError.not_leader_or_follower, error_message="moved", active_producers=()
    )
    producer = ActiveProducer(STAMP, 41, 1_700_000_000_123, 5, -1)
    return Case(
        DescribeProducers({"orders": (3, 4)}),
        producers_request.DescribeProducersRequest(
            topics=(producers_request.TopicRequest(name="orders", partition_indexes=(3, 4)),)
        ),
        producers_response.DescribeProducersResponse(
            throttle_time=SECOND,
            topics=(producers_response.TopicResponse(name="orders", partitions=(answered, refused)),),
        ),
        {
            PARTITION: PartitionProducers(0, None, (producer,)),
            TopicPartition("orders", 4): PartitionProducers(6, "moved", ()),
        },
    )


def write_markers_case() -> Case:
    return Case(
        WriteTxnMarkers((Marker(STAMP, {"orders": (3,)}, 7),)),
        markers_request.WriteTxnMarkersRequest(
            markers=(
                markers_request.WritableTxnMarker(
                    producer_id=STAMP.producer_id,
                    producer_epoch=STAMP.epoch,
                    transaction_result=False,
                    topics=(markers_request.WritableTxnMarkerTopic(name="orders", partition_indexes=(3,)),),
                    coordinator_epoch=7,
                ),
            )
        ),
        markers_response.WriteTxnMarkersResponse(
            markers=(
                markers_response.WritableTxnMarkerResult(
                    producer_id=STAMP.producer_id,
                    topics=(
                        markers_response.WritableTxnMarkerTopicResult(
                            name="orders",
                            partitions=(
                                markers_response.WritableTxnMarkerPartitionResult(
                                    partition_index=3, error_code=KioError.cluster_authorization_failed
                                ),
                            ),
                        ),
                    ),
                ),
            )
        ),
        {STAMP.producer_id: {PARTITION: 31}},
    )
