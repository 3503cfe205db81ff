"""DescribeShareGroupOffsets (0-1): split by the coordinators of the groups, and merged."""

from sidecar.gateway.access.asked import (
    GROUP,
    NO_ID,
    TOPIC,
    Asked,
    Asking,
    Divided,
    Operation,
    error_fields,
    refused_topic,
)
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Keyed, Route, ShadowRule
from sidecar.protocol.schema import Values


def _share_offsets(asking: Asking) -> Divided:
    rights = asking.rights
    nothing = {"start_offset": NO_ID, "lag": NO_ID} | error_fields(TOPIC)

    def may(topic: Values) -> bool:
        return rights.topic(Operation.DESCRIBE, topic["topic_name"])

    hidden: dict[str, list[Values]] = {}
    groups: list[Values] = []
    refused: list[Values] = []
    for group in asking.fields["groups"]:
        if not rights.group(Operation.DESCRIBE, group["group_id"]):
            refused.append({"group_id": group["group_id"], "error_code": GROUP})
            continue
        topics: list[Values] | None = group["topics"]
        if topics is not None:
            hidden[group["group_id"]] = [refused_topic(topic, nothing) for topic in topics if not may(topic)]
            group = group | {"topics": [topic for topic in topics if may(topic)]}  # noqa: PLW2901 - what is left of it
        groups.append(group)

    def shown(group: Values) -> Values:
        kept = [topic for topic in group["topics"] if may(topic)]
        more = [] if group["error_code"] else hidden.get(group["group_id"], [])
        return group | {"topics": [*kept, *more]}

    def amend(answer: Values) -> Values:
        return answer | {"groups": [*map(shown, answer.get("groups", ())), *refused]}

    code = GROUP if refused else TOPIC if any(hidden.values()) else 0
    return Divided(asking.fields | {"groups": groups} if groups else None, amend, code)


SPEC = ApiSpec(
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, (0, 1), Route.GROUPS, Asked(_share_offsets), ShadowRule.OWN,
    Keyed("groups", "groups", "group_id", named_by="group_id"),
)  # fmt: skip
