"""Is Redis reachable, does it keep its data, is its clock right?"""

from __future__ import annotations

import time

from metadata import MetadataError, MetadataMisconfigured, MetadataStore
from sidecar.cli.checks.finding import Finding, fail, ok, warn
from sidecar.settings import Settings


async def check_redis(settings: Settings) -> list[Finding]:
    """All findings."""
    began = time.perf_counter()
    try:
        async with MetadataStore(
            settings.redis_url, settings.cluster, command_timeout_ms=settings.redis_timeout_ms
        ) as store:
            info = await store.check_server()
    except MetadataMisconfigured as error:
        remedy = "it needs maxmemory-policy noeviction, and the right to INFO"
        return [fail("redis", str(error), remedy, "the start of every node")]
    except (MetadataError, ValueError) as error:
        return [
            fail(
                "redis",
                str(error),
                "is Redis running, and SIDECAR_REDIS_URL correct? Owners keep writing without Redis",
                "claims and takeovers: no topic changes its owner",
            )
        ]
    took = (time.perf_counter() - began) * 1000
    found = [ok("redis", f"{store.address}: {info.name} {info.version}, noeviction, answers in {took:.0f} ms")]
    found += [
        warn("redis", text, "see docs/operate/operations.md; the contents of Redis come back from Kafka")
        for text in info.warnings
    ]
    return found
