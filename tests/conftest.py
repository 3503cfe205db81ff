"""Fixtures for all tests: the servers they run on, nodes as processes, and names nobody else uses."""

import gc
import signal
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, Protocol

import pytest
from hypothesis import settings

from sidecar.local import Kafka, KafkaConfig, Valkey, ValkeyConfig
from sidecar.local.jars import resolve
from sidecar.local.kafka_config import default_version
from sidecar.local.progress import Step
from sidecar.local.tools import Tools, find_tools
from tests.cluster import is_whole
from tests.nodes import CommandedNode, NodeProcess, running_node
from tests.rest import Rest
from tests.services import BACKENDS, CHOICE, Choice, NotStartedError, Services
from tests.shown import COLLECTED, fail_if_skipped
from tests.wait import wait_for

# A signal that is ignored here, by nohup or an `&` in a script, would be by whatever is started here, too.
for _number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)

settings.register_profile("patient", deadline=None, max_examples=50)  # a busy machine is no failure
settings.register_profile("night", deadline=None, max_examples=500)  # --hypothesis-profile=night
settings.load_profile("patient")
_KAFKA_FIXTURES = {"services", "kafka_cluster", "kafka_tools", "own_kafka"}
_SLOW = "tests/slow/"
_WHOLE = ("tests/slow/", "tests/kafka/security/")
_SHORT = "tests/unit/protocol/"
_SLOW_FIXTURES = {"kafka_cluster", "own_kafka"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--backend",
        choices=["auto", *BACKENDS],
        default="auto",
        help="where Kafka and Redis come from; auto: the first that starts of external, docker, embedded",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[CHOICE] = Choice(str(config.getoption("--backend")), BACKENDS)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays to the end: to look for garbage in it would take half of this time, and some later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What is under `slow`, or has a Kafka of its own, runs with `make test-slow`, unless it is marked `smoke`. Of
    several processes, none is to begin a whole directory, or a file that waits for half a minute, when the others have
    ended: the directories come first, and many files that take a few seconds last.
    """
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: (not item.nodeid.startswith(_WHOLE), item.nodeid.startswith(_SHORT)))
    for item in items:
        is_slow = item.nodeid.startswith(_SLOW) or _SLOW_FIXTURES & set(getattr(item, "fixturenames", ()))
        if is_slow and item.get_closest_marker("smoke") is None:
            item.add_marker(pytest.mark.slow)
    config.stash[COLLECTED] = [
        (item.nodeid, item.get_closest_marker("slow") is not None)
        for item in items
        if item.get_closest_marker("clients") is None
    ]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """In several processes: a file, or a directory that shares what is dear to start, whole in one of them."""
    from xdist.scheduler.loadfile import LoadFileScheduling  # noqa: PLC0415 - only where there are several

    class Whole(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return "/".join(file.split("/")[:3]) if file.startswith(_WHOLE) else file

    return Whole(config, log)


def pytest_report_header(config: pytest.Config) -> str:
    chosen = config.stash[CHOICE]
    return f"backend: {chosen.name}" + (f", not usable: {chosen.refusal}" if chosen.refusal else "")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Bring images and jars here before the first test: a download must not count against that test's timeout."""
    needed = {name for item in session.items for name in getattr(item, "fixturenames", ()) if name in _KAFKA_FIXTURES}
    if session.config.option.collectonly:
        return
    chosen = session.config.stash[CHOICE]
    write = session.config.get_terminal_writer().line
    if "services" in needed and chosen.refusal is None:
        try:
            chosen.bring(write)
        except NotStartedError as error:
            raise pytest.UsageError(f"backend {chosen.name}: {error}") from None
    if needed - (set() if chosen.name == "embedded" else {"services"}):
        told: set[str] = set()

        def tell(step: Step) -> None:
            if step.text not in told:
                told.add(step.text)
                write(step.text)

        resolve(default_version(), tell)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """One of several processes tells the one that reports."""
    told = getattr(session.config, "workeroutput", None)
    if told is not None:
        told["given_up"] = session.config.stash[CHOICE].given_up


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """One of several processes is done."""
    given_up = node.config.stash[CHOICE].given_up
    given_up.extend(said for said in getattr(node, "workeroutput", {}).get("given_up", ()) if said not in given_up)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for sentence in config.stash[CHOICE].given_up:
        terminalreporter.write_line(f"backend: {sentence}", yellow=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that shows a claim of `tests/pulsar.toml` fails where it is skipped."""
    report = yield
    fail_if_skipped(report)
    return report


@pytest.fixture(scope="session")
def services(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """The Kafka and the Redis all tests share: take names from `unique`, leave settings of the servers alone."""
    chosen = request.config.stash[CHOICE]
    if chosen.refusal:
        pytest.skip(f"backend {chosen.name}: {chosen.refusal}")
    with chosen.run(tmp_path_factory.mktemp("services")) as running:
        yield running


def scope_of_cluster(fixture_name: str, config: pytest.Config) -> Literal["module", "session"]:
    """Of `kafka_cluster` and what stands on it: a module in the default suite, where it has a smoke test or two, and
    three brokers take some CPU as long as they run.
    """
    return "session" if config.option.markexpr == "slow" else "module"


@pytest.fixture(scope=scope_of_cluster)
def kafka_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """Three brokers, replication factor 3, min.insync 2; embedded. A test that stops a broker starts it again."""
    cluster = Kafka(tmp_path_factory.mktemp("cluster"), KafkaConfig(brokers=3))
    cluster.start()
    yield cluster
    cluster.stop(grace=0)


@pytest.fixture(autouse=True)
def _whole_cluster(request: pytest.FixtureRequest) -> None:
    """What an earlier test did to `kafka_cluster` is over: a broker that came back may lag for a while."""
    if "kafka_cluster" in request.fixturenames:
        cluster: Kafka = request.getfixturevalue("kafka_cluster")
        wait_for(lambda: is_whole(cluster), "all brokers and replicas", 100)


@pytest.fixture(scope="session")
def kafka_tools() -> Tools:
    """Kafka's own command line tools: `kafka_tools.run("org.apache.kafka.tools.TopicCommand", "--list", …)`."""
    return find_tools()


QUICK_RETURN = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "200"}
"""Overrides for a broker that is killed: it is let in again once its old session has ended, by default after 3 s."""


@pytest.fixture(scope="session")
def node(services: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """The node of all tests that need nothing special of it: other topics and clients are on it, too."""
    directory = tmp_path_factory.mktemp("node")
    with running_node(directory, services.kafka_bootstrap, services.redis_url, CommandedNode) as process:
        yield process


@pytest.fixture
def rest(node: NodeProcess) -> Rest:
    return Rest(node.admin_url)


class OwnKafka(Protocol):
    """Starts a Kafka for one test: `own_kafka(version="3.9.1", overrides={"producer.id.expiration.ms": "1000"})`."""

    def __call__(self, **config: Any) -> Kafka: ...


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[OwnKafka]:
    with ExitStack() as running:

        def start(**config: Any) -> Kafka:
            kafka = Kafka(tmp_path / f"kafka-{uuid.uuid4().hex[:8]}", KafkaConfig(**config))
            running.callback(kafka.stop, grace=0)
            kafka.start()
            return kafka

        yield start


class OwnValkey(Protocol):
    """Starts a Valkey for one test: `own_valkey(overrides={"appendfsync": "always"})`."""

    def __call__(self, **config: Any) -> Valkey: ...


@pytest.fixture
def own_valkey(tmp_path: Path) -> Iterator[OwnValkey]:
    with ExitStack() as running:

        def start(**config: Any) -> Valkey:
            valkey = Valkey(tmp_path / f"valkey-{uuid.uuid4().hex[:8]}", ValkeyConfig(**config))
            running.callback(valkey.stop)
            valkey.start()
            return valkey

        yield start


class StartNode(Protocol):
    """Starts a node and waits for /readyz: `node_process()`, `node_process(node_id=2, cluster=c, LEASE_MS="500")`.

    Unless named, `kafka` and `redis` are those of `services` and the cluster is a new one. `ready=False` waits for
    /livez alone. `by_command`: see `CommandedNode`. Lines of its log that match `allow_in_log` may tell of an uncaught
    exception.
    """

    def __call__(
        self,
        *,
        kafka: str | None = None,
        redis: str | None = None,
        cluster: str | None = None,
        node_id: int = 1,
        ready: bool = True,
        by_command: bool = False,
        allow_in_log: str | None = None,
        **settings: str,
    ) -> NodeProcess: ...


@pytest.fixture
def node_process(request: pytest.FixtureRequest, tmp_path: Path, unique: "Unique") -> Iterator[StartNode]:
    started: list[tuple[NodeProcess, str | None]] = []

    def start(
        *,
        kafka: str | None = None,
        redis: str | None = None,
        cluster: str | None = None,
        node_id: int = 1,
        ready: bool = True,
        by_command: bool = False,
        allow_in_log: str | None = None,
        **settings: str,
    ) -> NodeProcess:
        if kafka is None or redis is None:
            services: Services = request.getfixturevalue("services")
            kafka, redis = kafka or services.kafka_bootstrap, redis or services.redis_url
        kind = CommandedNode if by_command else NodeProcess
        node = kind(tmp_path, kafka, redis, cluster=cluster or unique("c"), node_id=node_id, **settings)
        started.append((node, allow_in_log))
        return node.start(ready=ready)

    yield start
    for node, _ in reversed(started):
        node.stop()
    for node, allow in started:
        node.check_log(allow)


Unique = Callable[[str], str]


@pytest.fixture
def unique() -> Unique:
    """`unique("orders")` → a name that no other test, run or machine uses; for topics, groups, clusters, client ids."""
    return lambda prefix: f"{prefix}-{uuid.uuid4().hex[:10]}"
