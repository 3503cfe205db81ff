"""Every panel shows something: a real Prometheus scrapes a metrics page and answers each query of the dashboards."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import yaml
from aiohttp import web

from sidecar.local.ports import free_ports
from sidecar.telemetry.exposition import CONTENT_TYPE, Exposition
from tests.unit.deploy import dashboard_rules
from tests.unit.deploy.eventful import eventful_metrics, everything_happens
from tests.unit.deploy.files import DASHBOARDS, load_json
from tests.unit.deploy.promql import VARIABLE, substituted
from tests.wait import wait_for_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

WINDOW = "5s"  # at a scrape a second; substituted() takes the 20 s of the shipped configuration


@asynccontextmanager
async def busy_node() -> AsyncIterator[int]:
    """The port of a metrics page on which everything goes on rising."""
    metrics = eventful_metrics()
    metrics.upstream_opened()
    exposition = Exposition(metrics)

    async def page(request: web.Request) -> web.Response:
        everything_happens(metrics)
        return web.Response(body=await exposition.render(), headers={"Content-Type": CONTENT_TYPE})

    application = web.Application()
    application.router.add_get("/metrics", page)
    runner = web.AppRunner(application)
    await runner.setup()
    [port] = free_ports(1)
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield port
    finally:
        await runner.cleanup()


@asynccontextmanager
async def prometheus(program: str, directory: Path, target: int) -> AsyncIterator[str]:
    """The address of a Prometheus that scrapes `target` every second."""
    job = {"job_name": "sidecar", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}
    config = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": [job]}
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    [port] = free_ports(1)
    options = [f"--config.file={directory / 'prometheus.yml'}", f"--storage.tsdb.path={directory / 'data'}"]
    with (directory / "prometheus.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            program, *options, f"--web.listen-address=127.0.0.1:{port}", stdout=log, stderr=log
        )
        try:
            yield f"http://127.0.0.1:{port}/api/v1/query"
        finally:
            process.terminate()
            await process.wait()


async def ask(session: aiohttp.ClientSession, url: str, query: str) -> list[dict[str, Any]]:
    """The result of `query` as of now.

    Raises:
        aiohttp.ClientError: nobody answers, or Prometheus does not understand the query.
    """
    async with session.get(url, params={"query": query}, raise_for_status=True) as response:
        return (await response.json())["data"]["result"]


async def scrapes(session: aiohttp.ClientSession, url: str) -> int:
    """How often Prometheus has scraped the node within the window; 0 while it does not even answer."""
    try:
        result = await ask(session, url, f"count_over_time(sidecar_build_info[{WINDOW}])")
    except aiohttp.ClientError:
        return 0
    return int(result[0]["value"][1]) if result else 0


def asked(expression: str) -> str:
    """A panel's query for this Prometheus: every choice is "all"."""
    query = substituted(expression.replace("$__rate_interval", WINDOW))
    for name in ("job", "instance", "topic"):
        query = query.replace(f"{VARIABLE}{name}", ".+")
    return query


@pytest.mark.slow
async def test_every_query_of_the_dashboards_has_a_result(tmp_path: Path):
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("no prometheus on PATH (Debian: package prometheus)")

    async with busy_node() as node, prometheus(program, tmp_path, node) as url, aiohttp.ClientSession() as session:

        async def rates_can_be_worked_out() -> bool:
            return await scrapes(session, url) >= 4

        await wait_for_async(rates_can_be_worked_out, "four scrapes", timeout=30)
        empty: list[str] = []
        for path in DASHBOARDS:
            for title, target in dashboard_rules.targets(load_json(path)):
                result = await ask(session, url, asked(target["expr"]))
                if all(series["value"][1] == "NaN" for series in result):
                    empty.append(f"{title}: {target['expr']}")

    assert empty == []
