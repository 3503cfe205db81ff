"""What a node tells of itself with every scrape: it costs the same however many topics the node serves."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from sidecar.exclusive.governed_topics import GovernedTopics
from sidecar.node.gauges import queue_of
from sidecar.telemetry.series import Queue


class PaperTopic:
    """A topic that counts how often somebody looks whether it is served."""

    def __init__(self, *, serving: bool, waiting: int, looked: Callable[[], None]) -> None:
        shared = SimpleNamespace(connected=list[str])
        part = SimpleNamespace(waiting=lambda: [None] * waiting, current=None, shared=shared)
        self.parts = (part,)
        self._serving, self._looked = serving, looked

    @property
    def serving(self) -> bool:
        self._looked()
        return self._serving


def governed_of(**topics: PaperTopic) -> Any:
    """Governed topics with nothing but these."""
    found = object.__new__(GovernedTopics)
    found.topics = SimpleNamespace(named=topics, topic=topics.__getitem__)  # pyright: ignore[reportAttributeAccessIssue]
    return found


def test_one_topics_queue_is_told_without_a_look_at_the_others() -> None:
    looks: list[str] = []
    names = [f"topic-{number}" for number in range(1000)]
    topics = {
        name: PaperTopic(serving=True, waiting=number, looked=lambda name=name: looks.append(name))
        for number, name in enumerate(names)
    }
    governed = governed_of(**topics)
    assert [queue_of(governed, name) for name in names] == [Queue(number, number) for number in range(1000)]
    assert looks == names


def test_nobody_waits_for_what_is_served_elsewhere_or_unheard_of() -> None:
    governed = governed_of(moved=PaperTopic(serving=False, waiting=3, looked=lambda: None))
    assert queue_of(governed, "moved") == queue_of(governed, "unheard-of") == Queue(0, 0)
