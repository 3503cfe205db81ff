"""Pages of clients: each that stays is told once, however many come and go between the pages."""

import asyncio
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sidecar.node.view.node import page_of
from sidecar.policy import identity
from sidecar.protocol.api_versions import ClientSoftware


def client(number: int, client_id: bytes | None = b"billing;mode=exclusive", software: str = "kgo") -> Any:
    counted = {"requests": 3, "bytes_in": 30, "bytes_out": 40, "unanswered": 1}
    connection = SimpleNamespace(peer=f"10.0.0.1:{number}", since_ms=number, **counted)
    parsed = None if client_id is None else identity.parse(client_id)
    found = SimpleNamespace(identity=parsed, connection=connection, software=ClientSoftware(software, ""))
    found.principal, found.listener, found.login = "User:ANONYMOUS", "OUTSIDE", None
    return found


def page(clients: dict[int, Any], after: int, most: int) -> tuple[list[int], int | None]:
    found, token = asyncio.run(page_of(clients, 7, after, most))
    return [each.since_ms for each in found], token


NUMBERS = st.sets(st.integers(1, 60))


@given(NUMBERS.filter(bool), st.integers(1, 9), st.lists(st.tuples(NUMBERS, st.integers(0, 5))))
def test_who_stays_is_told_once_while_others_come_and_go(
    start: set[int], most: int, changes: list[tuple[set[int], int]]
):
    clients = {number: client(number) for number in start}
    stayed, newest = set(start), 100
    told: list[int] = []
    after: int | None = 0
    while after is not None:
        found, after = page(clients, after, most)
        assert len(found) <= most
        told += found
        assert len(told) == len(set(told))
        gone, come = changes.pop() if changes else (set(), 0)
        for number in gone & clients.keys():
            del clients[number]
            stayed.discard(number)
        for newest in range(newest + 1, newest + 1 + come):  # noqa: B020 - ids rise from where they were
            clients[newest] = client(newest)
    assert stayed <= set(told)


def test_a_client_is_told_as_it_presents_itself():
    (found,), token = asyncio.run(page_of({5: client(5)}, 7, 0, 10))
    assert token is None
    said = (found.node_id, found.client_id, found.name, found.mode)
    assert said == (7, "billing;mode=exclusive", "billing", "exclusive")
    assert (found.software, found.address, found.since_ms) == (("kgo", None), "10.0.0.1:5", 5)
    assert (found.requests, found.bytes_in, found.bytes_out, found.in_flight) == (3, 30, 40, 1)


def test_a_client_is_told_with_its_principal_once_it_has_logged_in_and_with_its_listener():
    anonymous, newcomer, alice, endless = (client(number) for number in range(1, 5))
    newcomer.login, alice.login = SimpleNamespace(done=False), SimpleNamespace(done=True)
    newcomer.principal = alice.principal = "User:alice"
    endless.principal = "User:CN=" + "x" * 30_000
    found, _ = asyncio.run(page_of(dict(enumerate((anonymous, newcomer, alice, endless))), 7, -1, 10))
    assert [each.principal for each in found[:3]] == ["User:ANONYMOUS", None, "User:alice"]
    assert len(found[3].principal or "") < 256
    assert {each.listener for each in found} == {"OUTSIDE"}


def test_who_has_said_nothing_yet_has_no_name_and_a_very_long_one_is_cut():
    silent, endless = client(1, None, ""), client(2, b"x" * 30_000, "y" * 30_000)
    (first, second), _ = asyncio.run(page_of({1: silent, 2: endless}, 7, 0, 10))
    assert (first.client_id, first.name, first.mode, first.software) == ("", "", None, (None, None))
    assert max(map(len, (second.client_id, second.name, second.software[0] or ""))) < 256


async def test_others_have_their_turn_while_a_long_page_is_made():
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    found, _ = await page_of({number: client(number) for number in range(1, 1001)}, 7, 0, 1000)
    counting.cancel()
    assert (len(found), turns) == (1000, 10)
