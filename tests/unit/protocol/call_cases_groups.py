"""Cases of the calls about groups."""

from __future__ import annotations

from kio.schema.describe_groups.v5 import request as describe_request
from kio.schema.describe_groups.v5 import response as describe_response
from kio.schema.errors import ErrorCode as KioError
from kio.schema.list_groups.v4 import request as list_request
from kio.schema.list_groups.v4 import response as list_response
from kio.schema.offset_commit.v7 import request as commit_request
from kio.schema.offset_commit.v7 import response as commit_response
from kio.schema.offset_fetch.v8 import request as fetch_request
from kio.schema.offset_fetch.v8 import response as fetch_response

from sidecar.protocol.calls.groups import (
    CommitOffsets,
    DescribedGroup,
    DescribeGroups,
    GroupOffsets,
    GroupsListed,
    ListedGroup,
    ListGroups,
    OffsetFetch,
)
from tests.unit.protocol.call_case import NO_THROTTLE, Case


def list_groups_case() -> Case:
    listed = list_response.ListedGroup
    return Case(
        ListGroups(),
        list_request.ListGroupsRequest(states_filter=()),
        list_response.ListGroupsResponse(
            throttle_time=NO_THROTTLE,
            error_code=KioError.coordinator_load_in_progress,
            groups=(
                listed(group_id="audit", protocol_type="consumer", group_state="Stable"),
                listed(group_id="tool", protocol_type="", group_state="Empty"),
            ),
        ),
        GroupsListed(14, [ListedGroup("audit", "consumer", "Stable"), ListedGroup("tool", "", "Empty")]),
    )


def describe_groups_case() -> Case:
    def member(name: str, instance: str | None) -> describe_response.DescribedGroupMember:
        return describe_response.DescribedGroupMember(
            member_id=name,
            group_instance_id=instance,
            client_id="c",
            client_host="/127.0.0.1",
            member_metadata=b"metadata",
            member_assignment=b"",
        )

    return Case(
        DescribeGroups(["audit", "none"]),
        describe_request.DescribeGroupsRequest(groups=("audit", "none"), include_authorized_operations=False),
        describe_response.DescribeGroupsResponse(
            throttle_time=NO_THROTTLE,
            groups=(
                describe_response.DescribedGroup(
                    error_code=KioError.none,
                    group_id="audit",
                    group_state="Stable",
                    protocol_type="consumer",
                    protocol_data="range",
                    members=(member("first", None), member("second", "static")),
                    authorized_operations=-(2**31),
                ),
                describe_response.DescribedGroup(
                    error_code=KioError.not_coordinator,
                    group_id="none",
                    group_state="Dead",
                    protocol_type="",
                    protocol_data="",
                    members=(),
                    authorized_operations=-(2**31),
                ),
            ),
        ),
        {"audit": DescribedGroup(0, "Stable", 2), "none": DescribedGroup(16, "Dead", 0)},
    )


def offset_fetch_case() -> Case:
    asked = fetch_request.OffsetFetchRequestTopics(name="orders-audit", partition_indexes=(0, 3))

    def committed(
        index: int, offset: int, code: KioError = KioError.none
    ) -> fetch_response.OffsetFetchResponsePartitions:
        return fetch_response.OffsetFetchResponsePartitions(
            partition_index=index,
            committed_offset=offset,
            committed_leader_epoch=2,
            metadata="note" if index else None,
            error_code=code,
        )

    def found(
        group: str, code: KioError, *partitions: fetch_response.OffsetFetchResponsePartitions
    ) -> fetch_response.OffsetFetchResponseGroup:
        topics = (fetch_response.OffsetFetchResponseTopics(name="orders-audit", partitions=partitions),)
        return fetch_response.OffsetFetchResponseGroup(
            group_id=group, topics=topics if partitions else (), error_code=code
        )

    unstable = KioError.unstable_offset_commit
    return Case(
        OffsetFetch(["a/b", "other"], "orders-audit", (0, 3)),
        fetch_request.OffsetFetchRequest(
            groups=tuple(
                fetch_request.OffsetFetchRequestGroup(group_id=name, topics=(asked,)) for name in ("a/b", "other")
            ),
            require_stable=False,
        ),
        fetch_response.OffsetFetchResponse(
            throttle_time=NO_THROTTLE,
            groups=(
                found("a/b", KioError.none, committed(0, 2**40), committed(3, -1), committed(4, 9, unstable)),
                found("other", KioError.not_coordinator),
            ),
        ),
        {"a/b": GroupOffsets(0, {0: 2**40}), "other": GroupOffsets(16, {})},
    )


def commit_offsets_case() -> Case:
    partition = commit_request.OffsetCommitRequestPartition
    told = commit_response.OffsetCommitResponsePartition
    return Case(
        CommitOffsets("a/b", "orders-audit", {0: 5, 3: 2**40}),
        commit_request.OffsetCommitRequest(
            group_id="a/b",
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=(
                commit_request.OffsetCommitRequestTopic(
                    name="orders-audit",
                    partitions=tuple(
                        partition(
                            partition_index=index,
                            committed_offset=offset,
                            committed_leader_epoch=-1,
                            committed_metadata="",
                        )
                        for index, offset in ((0, 5), (3, 2**40))
                    ),
                ),
            ),
        ),
        commit_response.OffsetCommitResponse(
            throttle_time=NO_THROTTLE,
            topics=(
                commit_response.OffsetCommitResponseTopic(
                    name="orders-audit",
                    partitions=(
                        told(partition_index=0, error_code=KioError.none),
                        told(partition_index=3, error_code=KioError.unknown_member_id),
                    ),
                ),
            ),
        ),
        {0: 0, 3: 25},
    )
