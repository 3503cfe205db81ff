"""A node in front of a secured broker that knows its clients' rights by the mirrored ACLs alone."""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sidecar.gateway.enforcement import AclMirror, Enforcement
from sidecar.local.ports import HOST
from sidecar.security.acls import Rules
from tests.kafka.gateway.virtual import VirtualCluster
from tests.wait import wait_for_async

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka.admin import AclBinding

    from sidecar.gateway.client import Client
    from tests.kafka.security.secured import Secured

USER = "User:alice"


class _Quiet:
    def acls_failed(self, error: Exception) -> None:
        raise error

    def acls_changed(self, count: int) -> None:
        """Not looked at."""


@contextmanager
def enforced_node(broker: Secured) -> Iterator[tuple[VirtualCluster, AclMirror]]:
    """A node whose clients are all alice."""
    with VirtualCluster(f"{HOST}:{broker.ports['PLAINTEXT']}") as virtual:
        (only,) = virtual.nodes

        async def make() -> AclMirror:
            return AclMirror(only.upstream, Rules(frozenset({"User:ANONYMOUS"})), _Quiet())

        mirror = virtual.run(make())
        virtual.run(mirror.read())
        enforcement = Enforcement(only.upstream, mirror)
        rights = enforcement.rights

        def as_alice(client: Client) -> Any:
            client.principal = USER
            return rights(client)

        enforcement.rights = as_alice  # type: ignore[method-assign]
        only.gateway.enforcement = enforcement
        yield virtual, mirror


async def set_rules(broker: Secured, virtual: VirtualCluster, mirror: AclMirror, rules: list[AclBinding]) -> None:
    """Have the broker and the node know these rules, and no others."""
    broker.forget_acls()
    for each in broker.admin.create_acls(rules).values() if rules else ():
        each.result(30)

    async def are_known() -> bool:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(mirror.read(), virtual._loop))
        return mirror.acls is not None and len(mirror.acls.bindings) == len(rules)

    await wait_for_async(are_known, "the rules")
