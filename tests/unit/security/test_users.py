"""The file of users: what it holds, what is refused, and that an unknown name looks like a known one."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.security import scram
from sidecar.security.scram import Hash, StoredKeys
from sidecar.security.users import ITERATIONS, Users, UsersFileError, load_users, read_users, user_line

LINE = user_line("alice", "secret")


def users(*lines: str) -> Users:
    return read_users("[users]\n" + "\n".join(lines), "users.toml")


def test_a_line_that_was_made_lets_its_password_in_and_no_other() -> None:
    found = users(LINE, user_line("bob", "other"))
    assert found.is_password("alice", "secret")
    assert not found.is_password("alice", "other")
    assert not found.is_password("bob", "secret")
    assert not found.is_password("carol", "secret")
    assert found.mechanisms() == ("SCRAM-SHA-256", "SCRAM-SHA-512")


def test_a_line_holds_no_password_and_no_salt_twice() -> None:
    assert "secret" not in LINE
    assert user_line("alice", "secret") != LINE
    assert "secret" not in repr(users(LINE))
    keys = users(LINE).entries["alice"][Hash.SCRAM_SHA_256]
    assert scram.base64_of(keys.stored_key) not in repr(users(LINE))


@given(st.text(min_size=1, max_size=60).filter(str.isprintable))
@settings(max_examples=20)
def test_a_line_is_toml_whatever_the_name(name: str) -> None:
    assert [*tomllib.loads(user_line(name, "secret", 4096))] == [name]
    assert users(user_line(name, "secret", 4096)).is_password(name, "secret")


@pytest.mark.parametrize(
    ("name", "password", "iterations", "why"),
    [
        ("", "secret", ITERATIONS, "a name has"),
        ("a\nb", "secret", ITERATIONS, "a name has"),
        ("a" * 256, "secret", ITERATIONS, "a name has"),
        ("alice", "", ITERATIONS, "is empty"),
        ("alice", "Ⅸ", ITERATIONS, "in two ways"),
        ("alice", "a\tb", ITERATIONS, "U\\+0009 is not allowed"),
        ("alice", "secret", 4095, "iterations"),
        ("alice", "secret", 100_001, "iterations"),
    ],
)
def test_a_line_that_would_not_work_is_not_made(name: str, password: str, iterations: int, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        user_line(name, password, iterations)


KEY = scram.base64_of(bytes(32))
ENTRY = f"SCRAM-SHA-256$4096:QQ==${KEY}:{KEY}"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[users", "is not TOML"),
        ("", "one table"),
        ("[users]\n[other]\n", "one table"),
        ("users = 1", "one table"),
        ("[users]\nalice = []", "user 'alice' in users.toml must have a list"),
        ("[users]\nalice = 'x'", "must have a list"),
        ("[users]\nalice = [1]", "an entry is MECHANISM"),
        ("[users]\nalice = ['secret']", "an entry is MECHANISM"),
        (f"[users]\nalice = ['SCRAM-SHA-1$4096:QQ==${KEY}:{KEY}']", "an entry is MECHANISM"),
        (f"[users]\nalice = ['SCRAM-SHA-512$4096:QQ==${KEY}:{KEY}']", "have 64 bytes"),
        (f"[users]\nalice = ['SCRAM-SHA-256$4096:Q${KEY}:{KEY}']", "base64"),
        (f"[users]\nalice = ['SCRAM-SHA-256$1:QQ==${KEY}:{KEY}']", "1 iterations"),
        (f"[users]\n'a\tb' = ['{ENTRY}']", "a name has"),
        (
            f"[users]\nalice = ['SCRAM-SHA-256$4096:QQ==${KEY}:{KEY}', 'SCRAM-SHA-256$5000:QQ==${KEY}:{KEY}']",
            "two entries",
        ),
        ("[users]\nalice = ['a']\nalice = ['b']", "is not TOML"),
    ],
)
def test_a_file_that_cannot_be_used_says_where(text: str, why: str) -> None:
    with pytest.raises(UsersFileError, match=why):
        read_users(text, "users.toml")


def test_a_file_is_named_where_it_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    with pytest.raises(UsersFileError, match=r"users\.toml cannot be read"):
        load_users(path)
    path.write_bytes(b"\xff")
    with pytest.raises(UsersFileError, match="not UTF-8"):
        load_users(path)
    path.write_text(f"[users]\n{LINE}")
    assert load_users(path).mechanisms() == ("SCRAM-SHA-256", "SCRAM-SHA-512")


# Unknown names --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", Hash)
def test_an_unknown_name_is_answered_as_a_known_one(kind: Hash) -> None:
    found = users(LINE)
    known, unknown = found.credential("alice", kind), found.credential("carol", kind)
    assert known.known
    assert not unknown.known
    assert (unknown.keys.iterations, len(unknown.keys.salt)) == (known.keys.iterations, len(known.keys.salt))
    assert users(LINE).credential("carol", kind) == unknown
    assert found.credential("dave", kind).keys.salt != unknown.keys.salt


def test_the_salt_of_an_unknown_name_cannot_be_calculated_without_the_file() -> None:
    kind = Hash.SCRAM_SHA_256
    salts = {users(user_line("alice", "secret")).credential("carol", kind).keys.salt for _ in range(3)}
    assert len(salts) == 3


def test_an_unknown_name_costs_plain_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    derived: list[tuple[Hash, int, int]] = []

    def derive(kind: Hash, password: str, salt: bytes, iterations: int) -> StoredKeys:
        derived.append((kind, len(salt), iterations))
        return StoredKeys(salt, iterations, bytes(kind.size), bytes(kind.size))

    found = users(LINE)
    monkeypatch.setattr(scram, "stored_keys", derive)
    assert not found.is_password("alice", "x")
    assert not found.is_password("carol", "x")
    assert derived[0] == derived[1]


def test_without_users_nobody_is_let_in() -> None:
    assert users().mechanisms() == ()
    assert not users().is_password("alice", "secret")
