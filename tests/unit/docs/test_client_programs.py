"""docs/use/clients.md and docs/use/leadership.md show parts of the programs that tests/clients runs."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap

import pytest

from tests.unit.docs.pages import ROOT, Block, page

PROGRAMS = ROOT / "examples" / "clients"
PAGE = page("docs/use/clients.md")
LANGUAGES = {"java": "java", "python": "py", "js": "js", "go": "go", "properties": "properties"}
BY_HAND = "client.id=billing;mode=wait_for_exclusive"
"""Settings of Java as a file: what java/Recipe.java has in code."""
SHOWN = [block for block in PAGE.blocks if BY_HAND not in block.text]
LEADING = [block for block in page("docs/use/leadership.md").blocks if block.language in LANGUAGES]


def programs(language: str) -> list[str]:
    """The text of every program in a language, each line without the blanks in front."""
    files = sorted(PROGRAMS.rglob(f"*.{LANGUAGES[language]}"))
    return ["\n".join(line.strip() for line in path.read_text(encoding="utf-8").splitlines()) for path in files]


def is_part(block: Block) -> bool:
    """Whether a program has the lines of a block, one behind the other; it may import more from the same modules."""
    lines = [line.strip() for line in textwrap.dedent(block.text).strip().splitlines()]
    imports = [line for line in lines if re.match(r"from \S+ import ", line)]
    text = "\n".join(line for line in lines if line not in imports).strip()
    return any(text in program and all(has(program, line) for line in imports) for program in programs(block.language))


def has(program: str, line: str) -> bool:
    """Whether a program imports what a line of Python does."""
    module, _, names = line.partition(" import ")
    found = re.findall(rf"^{re.escape(module)} import (.+)$", program, re.MULTILINE)
    return set(names.split(", ")) <= {name for each in found for name in each.split(", ")}


def test_the_recipes_of_leadership_are_there() -> None:
    assert [block.language for block in LEADING] == ["java", "java", "go", "go"]


@pytest.mark.parametrize(
    "block", SHOWN + LEADING, ids=lambda block: f"{block.language}-{block.text.split('(')[0].split()[-1]}"
)
def test_a_block_is_part_of_a_program(block: Block) -> None:
    assert is_part(block), block.text


def test_a_block_that_was_changed_is_found() -> None:
    block = SHOWN[0]
    assert not is_part(Block(block.language, block.text.replace("billing", "x").replace("-1", "-2"), ""))


PYTHON = [block for block in SHOWN if block.language == "python"]


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.text.split()[1])
def test_a_block_in_python_imports_what_it_names(block: Block) -> None:
    """Pasted as it stands, it defines its functions."""
    names = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", "--no-cache", "-"]
    found = subprocess.run(names, input=block.text, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout
    without = "\n".join(line for line in block.text.splitlines() if not line.startswith(("import", "from")))
    assert subprocess.run(names, input=without, capture_output=True, text=True, check=False).returncode == 1


def test_java_as_a_file_has_the_settings_of_the_program() -> None:
    [block] = [block for block in PAGE.blocks if BY_HAND in block.text]
    program = (PROGRAMS / "java" / "Recipe.java").read_text(encoding="utf-8")
    for line in block.text.splitlines():
        name, _, value = line.partition("=")
        assert f'"{name}", ' in program
        assert name in {"bootstrap.servers", "client.id"} or f'"{name}", "{value}"' in program


def test_every_client_has_a_section_and_a_version_that_was_run() -> None:
    sections = set(re.findall(r"^## (.+)$", PAGE.prose, re.MULTILINE))
    wanted = {
        "Java",
        "librdkafka, confluent-kafka",
        "aiokafka",
        "kafka-python",
        "KafkaJS",
        "Sarama",
        "franz-go",
        "Spark",
    }
    assert wanted | {"Debezium and Kafka Connect"} <= sections
    [run] = re.findall(r"^## What was run\n(.*)", PAGE.prose, re.MULTILINE | re.DOTALL)
    assert len(re.findall(r"^\| .+ \| .*\d.* \| \w.+ \|$", run, re.MULTILINE)) == 9


def test_the_versions_of_the_page_are_those_of_the_programs() -> None:
    text = PAGE.text
    pins = (PROGRAMS / "go" / "go.mod").read_text() + (PROGRAMS / "kafkajs" / "package.json").read_text()
    assert {*re.findall(r"(?:sarama|franz-go) v([\d.]+)|\"kafkajs\": \"([\d.]+)\"", pins)} == {
        ("1.61.1", ""),
        ("1.22.2", ""),
        ("", "2.2.4"),
    }
    assert all(version in text for version in ("1.61.1", "1.22.2", "2.2.4"))
    lock = (ROOT / "tests" / "clients" / "locks" / "debezium.txt").read_text()
    [debezium] = re.findall(r"io\.debezium:debezium-connector-postgres:(\S+)", lock)
    assert debezium in text
