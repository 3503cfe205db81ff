"""The collector of lines: which statements it knows, and what its table says of them."""

from __future__ import annotations

import ast

from tests.sim import lines

TEXT = '''
"""A module."""
TABLE = 1

def first(found: int) -> int:
    """Says nothing."""
    total: int
    if found:
        total = 1
    else:
        raise NotImplementedError
    for each in range(3):
        total += each

    def inner() -> int:
        return total

    try:
        inner()
    except ValueError:
        pass
    match total:
        case 1:
            total = 2
    return total
'''


def test_statements_of_functions_are_known_once_and_what_says_nothing_is_not() -> None:
    found = [statement.lineno for _, statement in lines._statements(ast.parse(TEXT))]
    assert sorted(found) == [8, 9, 12, 13, 15, 16, 19, 22, 24, 25]


def test_marks_of_several_processes_add_up() -> None:
    known: dict[str, bytes] = {}
    lines.add(known, {"a.py": b"\x00\x01\x00"})
    lines.add(known, {"a.py": b"\x01\x00\x00", "b.py": b"\x00"})
    assert known == {"a.py": b"\x01\x01\x00", "b.py": b"\x00"}


def test_the_report_names_spans_that_never_ran() -> None:
    file = "sidecar/fencing/topic.py"
    count = len(lines.lines_of(file))
    report = lines.report({file: bytes([1]) * (count - 2) + bytes(2)})
    rows = [line for line in report.splitlines() if file in line]
    assert len(rows) == 1
    assert rows[0].strip().startswith(f"{file}: ")
