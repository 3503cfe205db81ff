"""What the pages name exists: files, headings, tests, settings, metrics, commands, events, alerts, error codes.

A page that tells of a test that was renamed, or of a setting that is gone, is a promise that nobody keeps.
"""

from __future__ import annotations

import ast
import re
from functools import cache

import click
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from sidecar.admin.openapi import document
from sidecar.cli.root import cli
from sidecar.local import kafka_config, stack
from sidecar.network.client import ClientConnection
from sidecar.network.framing import BadLength
from sidecar.protocol.errors import ErrorCode
from sidecar.settings import ENV_PREFIX
from sidecar.settings.listeners import own_setting
from sidecar.settings.schema import Schema
from sidecar.telemetry.exposition import Exposition
from tests.unit.deploy.eventful import eventful_metrics
from tests.unit.deploy.files import RULES, load_yaml
from tests.unit.docs.pages import ROOT, Page, page, pages, tracked

PAGES = pages()
OURS = [found for found in PAGES if found.name != "deploy/runbook.md"]
each_page = pytest.mark.parametrize("found", OURS, ids=lambda found: found.name)


def test_there_are_pages() -> None:
    assert {"README.md", "docs/reference/guarantees.md", "docs/operate/operations.md"} <= {
        found.name for found in PAGES
    }


# Links ----------------------------------------------------------------------------------------------------------------


MADE_BY_RUNS = {"docs/reference/client-matrix.md"}
"""Pages that a run of something else writes: `make test-clients`."""


def broken(found: Page) -> list[str]:
    """Links of a page that lead nowhere."""
    lost: list[str] = []
    for link in found.links:
        target, _, anchor = link.partition("#")
        path = (found.path.parent / target).resolve() if target else found.path
        name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
        if path == found.path:
            known = found.anchors
        elif name in tracked():
            known = page(name).anchors if anchor else set[str]()
        elif name in MADE_BY_RUNS:
            continue
        else:
            lost.append(link)
            continue
        if anchor and anchor not in known:
            lost.append(link)
    return lost


@each_page
def test_links_lead_somewhere(found: Page) -> None:
    assert broken(found) == []


def test_a_link_that_leads_nowhere_is_found() -> None:
    lost = Page(ROOT / "docs" / "reference" / "not-there.md")
    lost.__dict__["text"] = "# One\n[a](glossary.md) [b](nowhere.md) [c](#one) [d](#two) [e](glossary.md#nothing)\n"
    assert broken(lost) == ["nowhere.md", "#two", "glossary.md#nothing"]


def twice(found: Page) -> list[str]:
    """Headings of the second level that a page has more than once: a link to such a one means the first of them."""
    headings = re.findall(r"^## .+$", found.prose, re.MULTILINE)
    return sorted({each for each in headings if headings.count(each) > 1})


@each_page
def test_no_section_is_there_twice(found: Page) -> None:
    assert twice(found) == []


def test_a_section_that_is_there_twice_is_found() -> None:
    doubled = Page(ROOT / "docs" / "not-there.md")
    doubled.__dict__["text"] = "# One\n## Two\n### Four\n## Three\n### Four\n## Two\n"
    assert twice(doubled) == ["## Two"]


# Files and tests ------------------------------------------------------------------------------------------------------


def named_paths(text: str) -> list[str]:
    """Paths of this repository between backticks."""
    return re.findall(r"`((?:tests|sidecar|metadata|docs|examples|benchmarks|grafana|deploy|proto)/[\w./-]*\w)`", text)


@each_page
def test_paths_in_code_are_files_or_directories(found: Page) -> None:
    named = {name for name in named_paths(found.prose) if "::" not in name}
    assert sorted(name for name in named if name not in tracked() and not (ROOT / name).is_dir()) == []


@cache
def functions_of(name: str) -> frozenset[str]:
    """Those of a module and its classes."""
    nodes: list[ast.stmt] = ast.parse((ROOT / name).read_text(encoding="utf-8")).body
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            nodes += node.body
    return frozenset(node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


def missing_tests(text: str) -> list[str]:
    """References `tests/….py::test_…` to tests that are not there."""
    named = re.findall(r"(tests/[\w/]+\.py)::(\w+)", text)
    return [f"{file}::{test}" for file, test in named if file not in tracked() or test not in functions_of(file)]


@each_page
def test_every_test_that_is_named_exists(found: Page) -> None:
    assert missing_tests(found.text) == []


def test_a_test_that_does_not_exist_is_found() -> None:
    here = "tests/unit/docs/test_references.py"
    text = f"`{here}::test_there_are_pages` `{here}::test_that_is_gone` `tests/unit/gone.py::test_x`"
    assert missing_tests(text) == [f"{here}::test_that_is_gone", "tests/unit/gone.py::test_x"]


@each_page
def test_a_test_named_alone_belongs_to_a_file_of_its_paragraph(found: Page) -> None:
    for paragraph in found.prose.split("\n\n"):
        files = [name for name in re.findall(r"tests/[\w/]+\.py", paragraph) if name in tracked()]
        known = {test for name in files for test in functions_of(name)}
        alone = re.findall(r"`(test_\w+)`", paragraph)
        assert [test for test in alone if test not in known] == []


def unshown(text: str) -> list[str]:
    """Entries of a list of promises that name no test. An entry may say *By:*, and ends with its tests."""
    entries = re.findall(r"^- .+(?:\n  .+)*", text, re.MULTILINE)
    return [entry for entry in entries if not re.search(r"^  Tests: .*(?:tests/|make test)", entry, re.MULTILINE)]


@pytest.mark.parametrize("name", ["docs/reference/guarantees.md", "docs/internals/evidence.md"])
def test_every_promise_names_a_test(name: str) -> None:
    prose = re.sub(r"^Not promised:\n(.*?)(?=^## )", "", page(name).prose, flags=re.MULTILINE | re.DOTALL)
    promises = prose.partition("\n## Not promised")[0]
    assert promises.count("\n- ") > 20
    assert unshown(promises) == []


def test_a_promise_without_a_test_is_found() -> None:
    text = "- One.\n  *By:* it.\n  Tests: `tests/a.py`.\n- Two.\n  *By:* it.\n\n- Three.\n  Tests: none.\n"
    assert unshown(text) == ["- Two.\n  *By:* it.", "- Three.\n  Tests: none."]


@cache
def modules() -> frozenset[str]:
    names = (name for name in tracked() if name.endswith(".py") and name.startswith(("sidecar/", "metadata/")))
    return frozenset(name for name in names if not re.search(r"__(init|main)__|_pb2|gateway/apis/k\d", name))


def test_the_file_map_has_every_module() -> None:
    named = set(named_paths(page("docs/internals/file-map.md").prose))
    assert sorted(modules() - named) == []


# Settings, commands, REST ---------------------------------------------------------------------------------------------

LOCAL = {
    stack.STATE_VARIABLE,
    stack.KAFKA_PORT_VARIABLE,
    stack.REDIS_PORT_VARIABLE,
    kafka_config.VERSION_VARIABLE,
}
SETTINGS = {ENV_PREFIX + name.upper() for name in Schema.model_fields} | LOCAL


@each_page
def test_every_setting_that_is_named_exists(found: Page) -> None:
    named = set(re.findall(r"\bSIDECAR_[A-Z][A-Z_]*[A-Z]\b", found.text))
    named = {name for name in named if not name.startswith("SIDECAR_TEST_")}  # of the tests, not of the program
    of_one_listener = {name for name in named if own_setting(name.removeprefix(ENV_PREFIX).lower()) is not None}
    assert sorted(named - SETTINGS - of_one_listener - {"SIDECAR_X_Y"}) == []


def resolve(words: list[str]) -> list[str]:
    """What is wrong with a command line: an unknown command or option."""
    command: click.Command = cli
    wrong: list[str] = []
    for word in words:
        if word.startswith("-"):
            options = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
            options |= {name for each in cli.params for name in each.opts} | {"--help", "-h"}
            wrong += [] if word.split("=")[0] in options else [word]
        elif isinstance(command, click.Group):
            inner = command.get_command(click.Context(command), word)
            if inner is None:
                return [*wrong, word]
            command = inner
    return wrong


@each_page
def test_every_command_that_is_named_exists(found: Page) -> None:
    shell = "\n".join(block.text for block in found.blocks if block.language in ("sh", "console"))
    lines = [span for span in found.spans if span.startswith("sidecar ")]
    lines += re.findall(r"(?:^|[ /])(sidecar (?:[a-z-]|\\\n).*(?:\\\n.*)*)", shell, re.MULTILINE)
    for line in lines:
        words = re.sub(r"\s#.*|\[.*", "", line.replace("\\\n", " ")).split()[1:]
        plain = [word for word in words if re.fullmatch(r"-{1,2}[a-z][a-z-]*(=.*)?|[a-z][a-z-]*", word)]
        assert resolve(plain) == [], line


def test_a_command_that_does_not_exist_is_found() -> None:
    assert resolve(["topic", "set", "orders", "--access", "exclusive"]) == []
    assert resolve(["topic", "make"]) == ["make"]
    assert resolve(["serve", "--no-such-flag"]) == ["--no-such-flag"]


@each_page
def test_every_make_target_that_is_named_exists(found: Page) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    shell = "\n".join(block.text for block in found.blocks if block.language == "sh")
    named = set(re.findall(r"`make ([a-z-]+)", found.prose)) | set(re.findall(r"^make ([a-z-]+)", shell, re.MULTILINE))
    assert sorted(named - targets) == []


def test_rest_lists_exactly_what_a_node_serves() -> None:
    served = {
        f"{method.upper()} {path}"
        for path, item in document("0")["paths"].items()
        for method in item
        if method in ("get", "put", "post", "delete", "patch")
    }
    assert (
        set(
            re.findall(r"^\| `((?:GET|PUT|POST|DELETE|PATCH) \S+)`", page("docs/reference/rest.md").prose, re.MULTILINE)
        )
        == served
    )


# Metrics, alerts, events ----------------------------------------------------------------------------------------------


async def test_every_metric_that_is_named_exists() -> None:
    exposed = (await Exposition(eventful_metrics()).render()).decode()
    families = list(text_string_to_metric_families(exposed))
    known = {sample.name for family in families for sample in family.samples} | {family.name for family in families}
    for found in OURS:
        named = set(re.findall(r"\b(sidecar_[a-z][a-z_]*[a-z])\b", found.prose))
        assert sorted(named - known) == [], found.name


def test_operations_names_exactly_the_alerts_there_are() -> None:
    rules = {rule["alert"]: rule for group in load_yaml(RULES)["groups"] for rule in group["rules"]}
    rows = re.findall(r"^\| \[(\w+)\]\(\S+\) \| (\w+) \|", page("docs/operate/operations.md").prose, re.MULTILINE)
    assert dict(rows) == {name: rule["labels"]["severity"] for name, rule in rules.items()}


LOGGED = frozenset({"debug", "info", "warning", "error", "log"})


def events_of(text: str) -> dict[str, set[str]]:
    """Names and fields of the events that a module logs: `log.warning("name", field=…)`, with what `bind` adds."""
    nodes = list(ast.walk(ast.parse(text)))
    bound: dict[str, set[str]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.targets[0], ast.Name):
            function = node.value.func
            if isinstance(function, ast.Attribute) and function.attr == "bind":
                bound[node.targets[0].id] = {str(word.arg) for word in node.value.keywords}
    found: dict[str, set[str]] = {}
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "log_of_files":
            good, bad = (str(each.value) for each in node.args if isinstance(each, ast.Constant))
            found[good] = {str(word.arg) for word in node.keywords}
            found[bad] = {*found[good], "problem", "goes_on_with"}
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LOGGED):
            continue
        names = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        if names and re.fullmatch(r"[a-z]+(_[a-z]+)*", names[0]):
            logger = node.func.value
            more = bound.get(logger.id, set()) if isinstance(logger, ast.Name) else set()
            fields = {str(word.arg) for word in node.keywords if word.arg != "exc_info"} | more
            found.setdefault(names[0], set()).update(fields)
    return found


def test_every_event_is_listed_with_its_fields() -> None:
    logged: dict[str, set[str]] = {}
    for name in modules():
        if name.startswith("sidecar/"):
            for event, fields in events_of((ROOT / name).read_text(encoding="utf-8")).items():
                logged.setdefault(event, set()).update(fields)
    logged["python_log"] = {"logger", "message"}  # its name is a constant of `telemetry.logs`
    rows = re.findall(r"^\| `(\w+)` \| [a-z, ]*\| (.*?) ?\| ", page("docs/reference/log-events.md").prose, re.MULTILINE)
    told = {event: set(re.findall(r"`(\w+)`", fields)) for event, fields in rows}
    assert told == logged


def test_the_events_of_a_module_are_found() -> None:
    text = 'log = base.bind(peer=1)\nlog.info("a_b", status=2)\nself._log.error("gone", problem=x, exc_info=e)\n'
    assert events_of(text) == {"a_b": {"peer", "status"}, "gone": {"problem"}}


def test_every_reason_of_a_rejection_is_listed() -> None:
    sources = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in modules() if name.startswith("sidecar/"))
    said = set(re.findall(r'(?:RejectError|\.reject|\.refuse|\.report)\(\s*"(\w+)"', sources))
    said |= set(re.findall(r'reason: ClassVar\[str\] = "(\w+)"', sources))
    table = re.search(r"_BAD_INPUT: Final.*?\{(.*?)\n\}", sources, re.DOTALL)
    assert table is not None
    said |= set(re.findall(r': "(\w+)",', table[1]))
    said |= {BadLength(size, head, 1).reason[0] for size, head in ((9, b"GET "), (9, b"\x16\x03"), (-1, b""), (9, b""))}
    prose = page("docs/reference/log-events.md").prose
    told = re.search(r"Reasons of `client_rejected`(.*?)\n\n", prose, re.DOTALL)
    assert told is not None
    assert set(re.findall(r"`(\w+)`", told[1])) == said
    assert ClientConnection.reject.__doc__


# Error codes ----------------------------------------------------------------------------------------------------------


def test_error_codes_bear_their_names() -> None:
    known = {str(code.value): code.name for code in ErrorCode}
    known |= {"70": "FETCH_SESSION_ID_NOT_FOUND", "115": "UNSUPPORTED_ENDPOINT_TYPE"}
    rows = re.findall(r"^\| ([\d /]+) \| ([A-Z_ /]*?) ?\| ", page("docs/reference/error-codes.md").prose, re.MULTILINE)
    assert len(rows) > 20
    for codes, names in rows:
        if names:
            assert [known[code] for code in codes.split(" / ")] == names.split(" / ")


# Words ----------------------------------------------------------------------------------------------------------------


def test_pages_speak_of_this_repository_only() -> None:
    for found in OURS:
        assert "../shared" not in found.text, found.name
        assert not re.search(r"\bissue #?\d", found.text), found.name


UNPUBLISHED = re.compile(r"(?<!helm )\binstall [^\n`]*(?<![\w/.-])kafka-sidecar\b(?!/)|kafka-sidecar\[")
"""A package of this name from a registry: until one is published, whoever follows such a line gets somebody else's."""


def test_nothing_says_to_install_a_package_that_is_not_published() -> None:
    files = [name for name in tracked() if name.endswith((".md", ".py", ".toml")) and not name.startswith("tests/")]
    assert [name for name in files if UNPUBLISHED.search((ROOT / name).read_text(encoding="utf-8"))] == []


def test_a_line_that_installs_what_is_not_published_is_found() -> None:
    wrong = ("pip install kafka-sidecar", "pip install 'kafka-sidecar[local]'", "uv tool install -U kafka-sidecar")
    assert all(UNPUBLISHED.search(line) for line in wrong)
    right = "/opt/kafka-sidecar/bin/pip install dist/kafka_sidecar-*.whl", "systemctl reload kafka-sidecar"
    assert not any(UNPUBLISHED.search(line) for line in right)


def test_the_words_of_the_glossary_stand_in_order_and_once() -> None:
    parts = re.split(r"^## ", page("docs/reference/glossary.md").prose, flags=re.MULTILINE)
    tables = [words for part in parts if (words := re.findall(r"^\| \*\*(.+?)\*\*", part, re.MULTILINE))]
    assert [words for words in tables if words != sorted(words, key=str.lower)] == []
    of_users, of_the_code = map(set, tables)
    assert not of_users & of_the_code
    assert sum(map(len, tables)) == len(of_users | of_the_code) > 30


def test_the_compose_file_that_is_named_has_the_services_that_are() -> None:
    services = set(yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"])
    named = re.findall(r"`docker compose up --build --wait ([a-z0-9 -]+)`", page("docs/operate/operations.md").prose)
    assert named
    assert {service for line in named for service in line.split()} <= services
