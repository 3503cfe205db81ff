"""docs/reference/api-table.md from the rows of `sidecar.gateway.apis`."""

from __future__ import annotations

from typing import Final

from docs.generate import markdown
from sidecar.gateway.apis.spec import ApiSpec, Route, ShadowRule
from sidecar.gateway.apis.table import APIS, NEWEST, NOT_SERVED, OWN_APIS

_BEFORE: Final = """
    A node announces the versions that are in this table and that every upstream broker serves. It refuses anything
    else: for an unknown key or version it closes the connection and logs `client_rejected`. Only ApiVersions itself
    answers an unknown version, with 35 UNSUPPORTED_VERSION and the supported range.

    *Kafka 4.4*: the newest version that its brokers offer. *Announced from*: the lowest version in the ApiVersions
    answer, if a client library needs a lower one than is served.

    A node omits tagged fields (KIP-482) from requests that it forwards: consumers and producers need none of those that
    Kafka knows, and a broker of a newer version may read a field that the node does not know. A tagged field of Fetch
    that does not have its type's size is malformed. A node keeps unknown tagged fields in answers that it passes as a
    whole, and in structures that it reads by field and writes again, except in Metadata, which it answers itself. If it
    merges answers, it omits the unknown fields outside of all lists.
    """


_SHADOWS: Final = """
    How a node treats a request that names a [shadow topic](../use/shadow-topics.md). A request of an API without a rule
    is refused.
    """

_OWN: Final = """
    Kafka's framing with request header v1 and response header v0; the body is a message of
    `proto/sidecar/v1/control.proto`, and an error is a field of it. The APIs are served whether ApiVersions lists
    them or not; it lists them to clients whose software name (KIP-511) begins with `sidecar`. [How to write a
    client](own-apis.md).
    """


def page() -> str:
    """Which requests a node serves, in which versions, and which brokers answer them."""
    served = [
        (api.key, api.name, _versions(api), NEWEST[api.key], _named(api.route), _named(api.shadow), api.reason)
        for api in APIS.values()
    ]
    own = [(api.key, api.name, api.last, api.reason) for api in OWN_APIS.values()]
    routes = [(_named(route), route.value) for route in Route]
    rules = [(_named(rule), rule.value) for rule in ShadowRule]
    left_out = [(key, *text.split(": ", 1)) for key, text in NOT_SERVED.items()]
    return markdown.page(
        [
            "# APIs of Kafka that a node serves",
            "",
            *markdown.note("the modules of `sidecar/gateway/apis`"),
            *markdown.prose(_BEFORE),
            *markdown.table(
                ("key", "API", "versions", "Kafka 4.4", "answered by", "a shadow named in it", "why not more"), served
            ),
            "",
            "## Who answers",
            "",
            *markdown.table(("route", "meaning"), routes),
            "",
            "## Shadow topics",
            "",
            *markdown.prose(_SHADOWS),
            *markdown.table(("a shadow named in it", "meaning"), rules),
            "",
            "## The sidecar's own",
            "",
            *markdown.prose(_OWN),
            *markdown.table(("key", "API", "version", "what is left out"), own),
            "",
            "## Left out",
            "",
            "Brokers offer these. Without them clients fall back, or report that the feature is not there.",
            "",
            *markdown.table(("key", "API", "why"), left_out),
        ]
    )


def _named(member: Route | ShadowRule) -> str:
    return member.name.lower().replace("_", " ")


def _versions(api: ApiSpec) -> str:
    told = "" if api.lowest_advertised == api.first else f" (announced from {api.lowest_advertised})"
    return f"{api.first}–{api.last}{told}"
