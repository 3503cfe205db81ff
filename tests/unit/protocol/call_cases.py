"""Cases of the calls about logs and about the cluster, and the table of all cases."""

from __future__ import annotations

from uuid import UUID

from kio.schema.api_versions.v0 import request as versions_request
from kio.schema.api_versions.v0 import response as versions_response
from kio.schema.api_versions.v4 import request as newest_versions_request
from kio.schema.api_versions.v4 import response as newest_versions_response
from kio.schema.create_topics.v4 import request as create_request
from kio.schema.create_topics.v4 import response as create_response
from kio.schema.delete_topics.v6 import request as delete_request
from kio.schema.delete_topics.v6 import response as delete_response
from kio.schema.describe_configs.v1 import request as configs_request
from kio.schema.describe_configs.v1 import response as configs_response
from kio.schema.errors import ErrorCode as KioError
from kio.schema.fetch.v11 import request as fetch_request
from kio.schema.fetch.v11 import response as fetch_response
from kio.schema.find_coordinator.v1 import request as coordinator_request
from kio.schema.find_coordinator.v1 import response as coordinator_response
from kio.schema.incremental_alter_configs.v0 import request as alter_request
from kio.schema.incremental_alter_configs.v0 import response as alter_response
from kio.schema.list_offsets.v5 import request as offsets_request
from kio.schema.list_offsets.v5 import response as offsets_response
from kio.schema.metadata.v10 import request as metadata_request
from kio.schema.metadata.v10 import response as metadata_response
from kio.schema.produce.v8 import request as produce_request
from kio.schema.produce.v8 import response as produce_response

from sidecar.protocol.caller import CoordinatorKind
from sidecar.protocol.calls.admin import (
    AllClusterFeatures,
    AlterTopicConfig,
    ApiVersions,
    ClusterDescription,
    ConfigResource,
    CreateTopics,
    DeleteTopic,
    DescribeConfigs,
    Described,
    DescribeTopics,
    FindCoordinator,
    FoundCoordinator,
    NewTopic,
    Outcome,
    PartitionDescription,
    Resource,
    ServedVersions,
    TopicDescription,
)
from sidecar.protocol.calls.logs import (
    Appended,
    Fetched,
    FetchPartition,
    IsolationLevel,
    ListedOffset,
    ListOffsets,
    OffsetAt,
    ProduceBatch,
)
from sidecar.protocol.ids import Offset, TopicPartition
from tests.unit.protocol import call_cases_groups as groups
from tests.unit.protocol import call_cases_security as security
from tests.unit.protocol import call_cases_transactions as transactions
from tests.unit.protocol.call_case import NO_THROTTLE, PARTITION, SECOND, Case

TOPIC_ID = UUID("6b1f2a0e-3c1d-4f5a-9b7e-0d2c4e6f8a1b")


def produce_case() -> Case:
    refused = produce_response.BatchIndexAndErrorMessage
    return Case(
        ProduceBatch(PARTITION, b"a batch", 9_000),
        produce_request.ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout=9 * SECOND,
            topic_data=(
                produce_request.TopicProduceData(
                    name="orders",
                    partition_data=(produce_request.PartitionProduceData(index=3, records=b"a batch"),),
                ),
            ),
        ),
        produce_response.ProduceResponse(
            responses=(
                produce_response.TopicProduceResponse(
                    name="orders",
                    partition_responses=(
                        produce_response.PartitionProduceResponse(
                            index=3,
                            error_code=KioError.invalid_record,
                            base_offset=-1,
                            log_append_time=None,
                            log_start_offset=12,
                            record_errors=(refused(batch_index=1, batch_index_error_message="no key"),),
                            error_message="one record",
                        ),
                    ),
                ),
            ),
            throttle_time=NO_THROTTLE,
        ),
        Appended(87, Offset(-1), -1, 12, "one record"),
    )


def fetch_case() -> Case:
    return Case(
        FetchPartition(PARTITION, Offset(1_000), max_wait_ms=500, max_bytes=65_536, min_bytes=2),
        fetch_request.FetchRequest(
            max_wait=SECOND / 2,
            min_bytes=2,
            max_bytes=65_536,
            topics=(
                fetch_request.FetchTopic(
                    topic="orders",
                    partitions=(
                        fetch_request.FetchPartition(partition=3, fetch_offset=1_000, partition_max_bytes=65_536),
                    ),
                ),
            ),
            forgotten_topics_data=(),
        ),
        fetch_response.FetchResponse(
            throttle_time=NO_THROTTLE,
            error_code=KioError.none,
            responses=(
                fetch_response.FetchableTopicResponse(
                    topic="orders",
                    partitions=(
                        fetch_response.PartitionData(
                            partition_index=3,
                            error_code=KioError.none,
                            high_watermark=1_020,
                            last_stable_offset=1_010,
                            log_start_offset=7,
                            aborted_transactions=(
                                fetch_response.AbortedTransaction(producer_id=5, first_offset=1_001),
                            ),
                            records=b"batches",
                        ),
                    ),
                ),
            ),
        ),
        Fetched(0, Offset(1_020), Offset(1_010), Offset(7), b"batches"),
    )


def list_offsets_case() -> Case:
    asked = offsets_request.ListOffsetsPartition
    return Case(
        ListOffsets(
            {PARTITION: OffsetAt.LATEST, TopicPartition("orders", 4): OffsetAt.EARLIEST},
            IsolationLevel.READ_COMMITTED,
        ),
        offsets_request.ListOffsetsRequest(
            replica_id=-1,
            isolation_level=1,
            topics=(
                offsets_request.ListOffsetsTopic(
                    name="orders",
                    partitions=(asked(partition_index=3, timestamp=-1), asked(partition_index=4, timestamp=-2)),
                ),
            ),
        ),
        offsets_response.ListOffsetsResponse(
            throttle_time=NO_THROTTLE,
            topics=(
                offsets_response.ListOffsetsTopicResponse(
                    name="orders",
                    partitions=(
                        offsets_response.ListOffsetsPartitionResponse(
                            partition_index=3,
                            error_code=KioError.offset_not_available,
                            timestamp=-1,
                            offset=1_020,
                            leader_epoch=4,
                        ),
                    ),
                ),
            ),
        ),
        {PARTITION: ListedOffset(78, -1, Offset(1_020), 4)},
    )


def versions_case() -> Case:
    return Case(
        ApiVersions(),
        versions_request.ApiVersionsRequest(),
        versions_response.ApiVersionsResponse(
            error_code=KioError.none,
            api_keys=(versions_response.ApiVersion(api_key=22, min_version=0, max_version=6),),
        ),
        {22: ServedVersions(0, 6)},
    )


def features_case() -> Case:
    return Case(
        AllClusterFeatures(),
        newest_versions_request.ApiVersionsRequest(client_software_name="sidecar", client_software_version="1"),
        newest_versions_response.ApiVersionsResponse(
            error_code=KioError.none,
            api_keys=(),
            throttle_time=NO_THROTTLE,
            finalized_features_epoch=7,
            finalized_features=(
                newest_versions_response.FinalizedFeatureKey(name="t", max_version_level=2, min_version_level=1),
            ),
        ),
        bytes.fromhex("02 01 08 0000000000000007 02 08 02 02 74 0002 0001 00"),
    )


def coordinator_case() -> Case:
    return Case(
        FindCoordinator("tid", CoordinatorKind.TRANSACTION),
        coordinator_request.FindCoordinatorRequest(key="tid", key_type=1),
        coordinator_response.FindCoordinatorResponse(
            throttle_time=NO_THROTTLE,
            error_code=KioError.none,
            error_message=None,
            node_id=2,
            host="kafka-2",
            port=9092,
        ),
        FoundCoordinator(0, None, 2, "kafka-2", 9092),
    )


def describe_topics_case() -> Case:
    return Case(
        DescribeTopics(("orders", "payments")),
        metadata_request.MetadataRequest(
            topics=(
                metadata_request.MetadataRequestTopic(topic_id=None, name="orders"),
                metadata_request.MetadataRequestTopic(topic_id=None, name="payments"),
            ),
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        ),
        metadata_response.MetadataResponse(
            throttle_time=NO_THROTTLE,
            brokers=(
                metadata_response.MetadataResponseBroker(node_id=1, host="k1", port=9092, rack="r1"),
                metadata_response.MetadataResponseBroker(node_id=2, host="k2", port=9093),
            ),
            cluster_id="c",
            controller_id=2,
            topics=(
                metadata_response.MetadataResponseTopic(
                    error_code=KioError.none,
                    name="orders",
                    topic_id=TOPIC_ID,
                    partitions=(
                        metadata_response.MetadataResponsePartition(
                            error_code=KioError.leader_not_available,
                            partition_index=0,
                            leader_id=-1,
                            leader_epoch=9,
                            replica_nodes=(1, 2),
                            isr_nodes=(2,),
                            offline_replicas=(1,),
                        ),
                    ),
                ),
            ),
        ),
        ClusterDescription(
            {1: ("k1", 9092), 2: ("k2", 9093)},
            "c",
            2,
            (TopicDescription(0, "orders", TOPIC_ID, (PartitionDescription(5, 0, -1, 9, (1, 2), (2,)),)),),
        ),
    )


def create_topics_case() -> Case:
    return Case(
        CreateTopics((NewTopic("__sidecar_default", 1, 3, {"cleanup.policy": "compact"}),), 30_000),
        create_request.CreateTopicsRequest(
            topics=(
                create_request.CreatableTopic(
                    name="__sidecar_default",
                    num_partitions=1,
                    replication_factor=3,
                    assignments=(),
                    configs=(create_request.CreatableTopicConfig(name="cleanup.policy", value="compact"),),
                ),
            ),
            timeout=30 * SECOND,
        ),
        create_response.CreateTopicsResponse(
            throttle_time=NO_THROTTLE,
            topics=(
                create_response.CreatableTopicResult(
                    name="__sidecar_default", error_code=KioError.topic_already_exists, error_message="there"
                ),
            ),
        ),
        {"__sidecar_default": Outcome(36, "there")},
    )


def delete_topic_case() -> Case:
    topic_id = UUID(int=7)
    return Case(
        DeleteTopic(topic_id, 30_000),
        delete_request.DeleteTopicsRequest(
            topics=(delete_request.DeleteTopicState(name=None, topic_id=topic_id),), timeout=30 * SECOND
        ),
        delete_response.DeleteTopicsResponse(
            throttle_time=NO_THROTTLE,
            responses=(
                delete_response.DeletableTopicResult(
                    name=None, topic_id=topic_id, error_code=KioError.unknown_topic_id, error_message="no such topic"
                ),
            ),
        ),
        100,
    )


def describe_configs_case() -> Case:
    result = configs_response.DescribeConfigsResourceResult
    return Case(
        DescribeConfigs(
            (
                Resource(ConfigResource.TOPIC, "orders"),
                Resource(ConfigResource.BROKER, "1"),
            ),
            ("retention.ms",),
        ),
        configs_request.DescribeConfigsRequest(
            resources=(
                configs_request.DescribeConfigsResource(
                    resource_type=2, resource_name="orders", configuration_keys=("retention.ms",)
                ),
                configs_request.DescribeConfigsResource(
                    resource_type=4, resource_name="1", configuration_keys=("retention.ms",)
                ),
            )
        ),
        configs_response.DescribeConfigsResponse(
            throttle_time=NO_THROTTLE,
            results=(
                configs_response.DescribeConfigsResult(
                    error_code=KioError.none,
                    error_message="",
                    resource_type=2,
                    resource_name="orders",
                    configs=(
                        result(
                            name="retention.ms",
                            value="1000",
                            read_only=False,
                            config_source=5,
                            is_sensitive=False,
                            synonyms=(
                                configs_response.DescribeConfigsSynonym(name="log.retention.ms", value=None, source=5),
                            ),
                        ),
                        result(name="secret", value=None, read_only=True, is_sensitive=True, synonyms=()),
                    ),
                ),
            ),
        ),
        {Resource(ConfigResource.TOPIC, "orders"): Described(0, "", {"retention.ms": "1000", "secret": None})},
    )


def alter_topic_config_case() -> Case:
    return Case(
        AlterTopicConfig("orders", "message.timestamp.type", "LogAppendTime"),
        alter_request.IncrementalAlterConfigsRequest(
            resources=(
                alter_request.AlterConfigsResource(
                    resource_type=2,
                    resource_name="orders",
                    configs=(
                        alter_request.AlterableConfig(
                            name="message.timestamp.type", config_operation=0, value="LogAppendTime"
                        ),
                    ),
                ),
            ),
            validate_only=False,
        ),
        alter_response.IncrementalAlterConfigsResponse(
            throttle_time=NO_THROTTLE,
            responses=(
                alter_response.AlterConfigsResourceResponse(
                    error_code=KioError.none, error_message=None, resource_type=2, resource_name="orders"
                ),
            ),
        ),
        Outcome(0, None),
    )


CASES = {
    case().request.__class__.__name__: case()
    for case in (
        transactions.init_case,
        transactions.add_partitions_case,
        transactions.end_case,
        transactions.describe_producers_case,
        transactions.write_markers_case,
        produce_case,
        fetch_case,
        list_offsets_case,
        versions_case,
        features_case,
        coordinator_case,
        describe_topics_case,
        create_topics_case,
        delete_topic_case,
        describe_configs_case,
        alter_topic_config_case,
        groups.list_groups_case,
        groups.describe_groups_case,
        groups.offset_fetch_case,
        groups.commit_offsets_case,
        security.handshake_case,
        security.authenticate_case,
        security.describe_acls_case,
    )
}
