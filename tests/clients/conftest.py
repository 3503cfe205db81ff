"""The matrix as a session: one run of the chosen cells, which the tests wait for, and its report at the end.

`--through` exists only where this directory is named on the command line, as `make test-clients` does.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from sidecar.local import KafkaConfig
from sidecar.local.jars import Jars, resolve
from sidecar.local.java import find_java
from tests.services import CHOICE, Services

from . import gobuild, setting
from .features import CELLS
from .further import KAFKA, Further
from .outcome import Route
from .over_tls import Logins
from .recipes import Recipes
from .report import Report, Section, as_markdown, as_text, with_section
from .run import CellId, MatrixRun
from .setting import AUTHORIZED, Behind
from .stage import Stage, standing
from .versions import Versions

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "client-matrix.md"
_ROUTES = {"node": [Route.NODE], "direct": [Route.DIRECT], "both": [Route.NODE, Route.DIRECT]}
_REPORT = pytest.StashKey[Report]()
_FURTHER = pytest.StashKey[Further]()
_SECTIONS = pytest.StashKey[list[Section]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("clients")
    group.addoption(
        "--through", choices=sorted(_ROUTES), default="node", help="how the clients of the matrix reach Kafka (node)"
    )
    group.addoption("--nodes", type=int, default=2, help="how many nodes stand in front of it (2)")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per cell, named after it; after its route too where there are two."""
    if "cell" in metafunc.fixturenames:
        routes = _ROUTES[metafunc.config.getoption("--through", "node")]
        cells = [CellId(route, *cell) for route in routes for cell in CELLS]
        names = ["-".join([cell.route.value] * (len(routes) > 1) + [cell.client, cell.feature]) for cell in cells]
        metafunc.parametrize("cell", cells, ids=names)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_FURTHER] = Further()
    config.stash[_SECTIONS] = [Logins(), Versions()]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        config.stash[_FURTHER].plan(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.config.stash[_FURTHER].note(item, report)
    for section in item.config.stash[_SECTIONS]:
        section.note(item, report)
    return report


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A newer Kafka and two nodes, for the tests of `further` rows."""
    with standing(tmp_path_factory.mktemp("stage")) as found:
        yield found


@pytest.fixture(scope="session")
def jars() -> Jars:
    """The newest Java client and tools, of the version of the Kafka that the matrix runs on."""
    return resolve(KAFKA)


@pytest.fixture(scope="session")
def recipes(jars: Jars, tmp_path_factory: pytest.TempPathFactory) -> Recipes:
    """The programs of `examples/clients`."""
    return Recipes(tmp_path_factory.mktemp("recipes"), find_java(), jars)


@pytest.fixture(scope="session")
def behind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    """The servers: external ones where they are named, else the matrix's own, the newest Kafka with an authorizer."""
    if request.config.stash[CHOICE].name == "external":
        services: Services = request.getfixturevalue("services")
        yield Behind(services.kafka_bootstrap, services.redis_url, f"of the backend {services.backend}")
        return
    config = KafkaConfig(version=KAFKA, overrides=AUTHORIZED)
    with setting.own_servers(tmp_path_factory.mktemp("behind"), config) as servers:
        yield servers


@pytest.fixture(scope="session")
def matrix(
    request: pytest.FixtureRequest, behind: Behind, jars: Jars, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MatrixRun]:
    """The run of all cells that are tested in this session, begun."""
    cells = [
        item.callspec.params["cell"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and "matrix" in item.fixturenames and hasattr(item, "callspec")
    ]
    folder, count = tmp_path_factory.mktemp("matrix"), int(request.config.getoption("--nodes"))
    with ExitStack() as running:
        targets = {Route.DIRECT: setting.direct(behind)}
        if any(cell.route is Route.NODE for cell in cells):
            nodes = running.enter_context(setting.nodes_before(behind, folder, count))
            targets[Route.NODE] = setting.through(behind, nodes)
        run = MatrixRun(targets, setting.commands(find_java(), jars), jars.paths, folder)
        running.callback(setting.tidy, behind, run.name)
        running.callback(run.close)
        run.start(cells)
        yield run
        stash = request.config.stash
        further, sections = stash[_FURTHER], stash[_SECTIONS]
        stash[_REPORT] = Report(dict(run.results), dict(run.versions), behind.version, count, further, sections)


@pytest.fixture(scope="session")
def ownctl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client of the own APIs in Go, built."""
    if reason := gobuild.refusal():
        pytest.skip(reason)
    return gobuild.build(tmp_path_factory.mktemp("go") / "own")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The matrix, and whether the page was written: it is, where all tests that fill it were run and passed. Otherwise
    its sections are whose tests all were.
    """
    report, sections = config.stash.get(_REPORT, None), config.stash[_SECTIONS]
    for route in report.routes() if report is not None else ():
        terminalreporter.section("clients and features", sep="-")
        for line in as_text(report, route):
            terminalreporter.write_line(line)
    written = [section for section in sections if section.complete()]
    is_whole = report is not None and report.complete(Route.NODE) and report.further.complete()
    if not written:
        return
    if is_whole and written == sections:
        PAGE.write_text(as_markdown(report), encoding="utf-8")
    else:
        page = PAGE.read_text(encoding="utf-8")
        for section in written:
            page = with_section(page, section)
        PAGE.write_text(page, encoding="utf-8")
        terminalreporter.write_line(f"only sections: {', '.join(section.heading for section in written)}")
    terminalreporter.write_line(f"written: {PAGE.relative_to(Path(__file__).parents[2])}")
