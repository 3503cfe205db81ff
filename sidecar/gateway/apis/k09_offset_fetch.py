"""OffsetFetch (1-10): split by the coordinators of the groups, and merged (`offset_fetch`)."""

from collections.abc import Iterable

from sidecar.gateway.access.asked import GROUP, Asked, Asking, Divided, Operation, ids_in, whole
from sidecar.gateway.access.groups import fetched, permitted, why_refused
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route, ShadowRule, SharedLinks
from sidecar.gateway.offset_fetch import OffsetFetchApi
from sidecar.protocol.schema import Values


def _group_fetched(asking: Asking, group: Values) -> Divided:
    """The allowed part of a group in OffsetFetch: of the request before version 8, of one element since."""
    topics: list[Values] | None = group["topics"]
    if not asking.rights.group(Operation.DESCRIBE, group["group_id"]):
        refused = [fetched(topic, GROUP) for topic in topics or ()] if asking.version < 2 else []
        return whole({"group_id": group["group_id"], "error_code": GROUP, "topics": refused}, GROUP)
    may = permitted(asking, Operation.DESCRIBE)
    if topics is None:
        return Divided(group, lambda answer: answer | {"topics": [each for each in answer["topics"] if may(each)]})
    codes = [why_refused(asking, topic) for topic in topics if not may(topic)]
    hidden = [fetched(topic, why_refused(asking, topic)) for topic in topics if not may(topic)]

    def amend(answer: Values) -> Values:
        return answer if answer.get("error_code") else answer | {"topics": [*answer["topics"], *hidden]}

    return Divided(group | {"topics": [topic for topic in topics if may(topic)]}, amend, min(codes, default=0))


def _offset_fetch(asking: Asking) -> Divided | None:
    if "groups" not in asking.fields:
        divided = _group_fetched(asking, asking.fields)
        return divided if divided.code or asking.fields["topics"] is None else None
    found = [_group_fetched(asking, group) for group in asking.fields["groups"]]
    kept = [each.fields for each in found if each.fields is not None]
    code = next((each.code for each in found if each.code), 0)
    if not code and all(group["topics"] is not None for group in kept):
        return None

    def amend(answer: Values) -> Values:
        """Brokers answer in the order of the request."""
        left = iter(answer.get("groups", ()))
        return answer | {"groups": [each.amend({} if each.fields is None else next(left)) for each in found]}

    return Divided(asking.fields | {"groups": kept} if kept else None, amend, code)


def _ids_fetched(fields: Values) -> Iterable[bytes]:
    return (topic_id for group in fields.get("groups", ()) for topic_id in ids_in(group["topics"]))


SPEC = ApiSpec(
    ApiKey.OFFSET_FETCH,
    (1, 10),
    Route.GROUPS,
    Asked(_offset_fetch, ids=_ids_fetched),
    ShadowRule.OWN,
    links=SharedLinks(since=3),
    cold=lambda _, of: OffsetFetchApi(of.coordinators, of.guards, of.auto_reset).handle,
)
