"""DescribeTopicPartitions (0): page by page, with nodes as leaders (KIP-966, `topic_partitions`)."""

from sidecar.gateway.access.asked import Operation, PerTopic
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, ShadowRule
from sidecar.gateway.topic_partitions import TopicPartitionsApi

SPEC = ApiSpec(
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    (0, 0),
    Route.ANY,
    PerTopic(Operation.DESCRIBE),
    ShadowRule.SHOWN,
    cold=lambda _, of: TopicPartitionsApi(of.upstream, of.resolver, of.cluster).handle,
    reason="newest known (KIP-966); a broker's page, with nodes as leaders and the only replicas",
)
