"""What happens, as server-sent events: in order, from where a reader was, with a bound on readers."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.client import HTTPResponse
from typing import Any, cast

import pytest

from tests.kafka.exclusive.conftest import Connect
from tests.rest import Rest, govern
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for

OK = 0


class Stream:
    """One reader of `/v1/events`."""

    def __init__(self, rest: Rest, query: str = "", last: int | None = None) -> None:
        headers = {} if last is None else {"Last-Event-ID": str(last)}
        request = urllib.request.Request(f"{rest.url}/v1/events{query}", headers=headers)
        self._answer = cast(HTTPResponse, urllib.request.urlopen(request, timeout=30))
        self.kind = self._answer.headers["Content-Type"]

    def close(self) -> None:
        self._answer.close()

    def events(self) -> Iterator[tuple[int, str, dict[str, Any]]]:
        """(position, kind, data) of each."""
        fields: dict[str, str] = {}
        for line in self._answer:
            text = line.decode().rstrip("\n")
            if text:
                name, _, value = text.partition(": ")
                fields[name] = value
            elif "data" in fields:
                yield int(fields["id"]), fields["event"], json.loads(fields["data"])
                fields = {}


def test_claims_losses_and_releases_are_told_in_order_and_again_from_any_position(
    rest: Rest, topic: str, connect: Connect
) -> None:
    query = f"?from=0&topic={topic}"
    first = connect("first")
    assert first.send(topic, b"0", sequence=0).error == OK
    second = connect("second;mode=exclusive_with_fencing")
    assert second.send(topic, b"1", sequence=0).error == OK
    second.close()
    with closing(Stream(rest, query)) as stream:
        assert stream.kind.startswith("text/event-stream")
        found = stream.events()
        told = [next(found) for _ in range(5)]
    assert [kind for _, kind, _ in told] == ["policy", "claimed", "deposed", "claimed", "released"]
    assert [position for position, _, _ in told] == sorted({position for position, _, _ in told})
    policy, claim, loss, takeover, release = [data for _, _, data in told]
    assert json.loads(policy["detail"]) == policy["details"]["policy"]
    assert policy["details"]["policy"]["access_mode"] == "exclusive"
    assert policy["details"]["by"] == "an operator at 127.0.0.1"
    assert ("details" in claim, loss["details"], takeover["details"]) == (False, {"by": "second"}, {"deposed": "first"})
    assert (claim["name"], claim["generation"], claim["mode"], claim["detail"]) == ("first", 1, "exclusive", "")
    assert (loss["name"], loss["generation"], loss["mode"], loss["detail"]) == ("first", 1, "exclusive", "by second")
    assert (takeover["name"], takeover["generation"], takeover["detail"]) == ("second", 2, "deposed first")
    assert (release["name"], release["generation"]) == ("second", 2)
    assert {data["topic"] for _, _, data in told} == {topic}
    with closing(Stream(rest, f"?topic={topic}", last=told[2][0])) as stream:
        assert next(stream.events())[2] == takeover


def test_a_policy_that_a_client_makes_by_its_mode_says_so(rest: Rest, services: Services, connect: Connect) -> None:
    topic = create_topic(services.kafka_bootstrap)
    owner = connect("owner;mode=exclusive")
    wait_for(lambda: owner.send(topic, b"0", sequence=0).error == OK, "the policy that its mode makes", 30)
    with closing(Stream(rest, f"?from=0&topic={topic}")) as stream:
        _, kind, data = next(stream.events())
    assert (kind, data["details"]["by"]) == ("policy", "a client that asks for a mode")


def test_what_happens_from_now_on_is_told_at_once(rest: Rest, topic: str, connect: Connect) -> None:
    with closing(Stream(rest, f"?topic={topic}")) as stream:
        found = stream.events()
        connect("owner").send(topic, b"0", sequence=0)
        _, kind, data = next(found)
        while kind == "policy":
            _, kind, data = next(found)
        assert (kind, data["name"]) == ("claimed", "owner")


def test_a_stream_may_begin_with_the_newest_of_before(rest: Rest, topic: str, connect: Connect) -> None:
    for number in range(3):
        assert connect(f"owner-{number};mode=exclusive_with_fencing").send(topic, b"0", sequence=0).error == OK
    with closing(Stream(rest, "?from=0")) as stream:  # until all are written, which is a moment after the answers
        found = stream.events()
        before = [next(found)]
        while (before[-1][1], before[-1][2]["name"]) != ("claimed", "owner-2") or before[-1][2]["topic"] != topic:
            before.append(next(found))
    with closing(Stream(rest, "?last=4")) as stream:  # other topics may have some of them by now
        assert next(stream.events())[0] >= before[-4][0]
    with closing(Stream(rest, f"?last=1000&topic={topic}")) as stream:
        assert next(stream.events())[1] == "policy"
    assert rest.call("GET", "/v1/events?last=1001")[0] == 400


def test_the_newest_of_before_are_those_of_the_topic_that_is_asked_for(
    rest: Rest, topic: str, connect: Connect, services: Services
) -> None:
    assert connect("owner").send(topic, b"0", sequence=0).error == OK
    with closing(Stream(rest, f"?from=0&topic={topic}")) as stream:  # until the claim is written
        assert "claimed" in (kind for _, kind, _ in stream.events())
    other = create_topic(services.kafka_bootstrap)
    for _ in range(2):
        govern(rest, other)
        assert rest.call("DELETE", f"/v1/topics/{other}/policy")[0] == 204
    with closing(Stream(rest, f"?topic={topic}&last=1")) as stream:
        found = stream.events()
        told = next(found)
        assert (told[2]["topic"], told[1]) == (topic, "claimed")
        govern(rest, other)
        govern(rest, topic, "exclusive_with_fencing")
        assert next(found)[2]["topic"] == topic
    with closing(Stream(rest, f"?topic={topic}&last=1000")) as stream:
        found = stream.events()
        assert [next(found)[1] for _ in range(2)] == ["policy", "claimed"]


def test_readers_are_bounded_and_give_their_place_back(rest: Rest) -> None:
    with ExitStack() as open_streams:
        for _ in range(8):
            open_streams.enter_context(closing(opened(rest)))
        with pytest.raises(urllib.error.HTTPError) as refused:
            Stream(rest)
        with refused.value as error:
            assert (error.code, "close one first" in json.loads(error.read())["message"]) == (503, True)
    assert rest.call("GET", "/v1/events?from=x")[0] == 400


def opened(rest: Rest) -> Stream:
    """A stream, as soon as whoever went before is known to be gone."""
    found: list[Stream] = []

    def try_once() -> bool:
        try:
            found.append(Stream(rest))
        except urllib.error.HTTPError as error:
            error.close()
        return bool(found)

    wait_for(try_once, "a place", 20)
    return found[0]


def test_a_policy_is_an_event_too(rest: Rest, topic: str) -> None:
    with closing(Stream(rest, f"?topic={topic}&from=0")) as stream:
        found = stream.events()
        govern(rest, topic, "exclusive_with_fencing")
        assert rest.call("DELETE", f"/v1/topics/{topic}/policy")[0] == 204
        details = [next(found)[2]["detail"] for _ in range(3)]
    assert [detail.rpartition("access_mode")[2][:26] for detail in details[:2]] == [
        '": "exclusive"}',
        '": "exclusive_with_fencing"}'[:26],
    ]
    assert details[2] == "deleted"
