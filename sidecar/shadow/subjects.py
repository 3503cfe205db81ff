"""Which topic a subject of a schema registry belongs to, and which subject of the source is read for a shadow's. Pure.

A subject is named after its topic: `TOPIC-key` and `TOPIC-value` (TopicNameStrategy), `TOPIC-RECORD`
(TopicRecordNameStrategy), or like the topic. Topic names may contain dashes too, so several topics may fit: the longest
name of a topic or shadow wins. With a topic `orders` and its shadow `orders-audit` the subject `orders-audit-value` is
the shadow's; with a topic `orders-audit-eu` besides, `orders-audit-eu-value` is that topic's.

A schema belongs to the source and its shadows share it (PIP-180).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from sidecar.cluster.resolver import is_legal

_CONTEXT: Final = ":."
_EVERY_CONTEXT: Final = ":*:"
_DEFAULT_CONTEXT: Final = ":.:"


@dataclass(frozen=True, slots=True)
class Subject:
    """A subject's name and its context. A context is written `:.NAME:`, with its colons; "" is the default context."""

    context: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Subject:
        """Parse `orders-value` or, with a context, `:.eu:orders-value`."""
        if not text.startswith((_CONTEXT, _EVERY_CONTEXT)):
            return cls("", text)
        end = text.find(":", 1)
        return cls(text, "") if end < 0 else cls(text[: end + 1], text[end + 1 :])

    def __str__(self) -> str:
        return self.context + self.name

    def named(self, name: str) -> Subject:
        """Return another subject in the same context."""
        return Subject(self.context, name)

    def is_in(self, context: str) -> bool:
        """Whether it is in a context; `:*:` means all contexts."""
        return context == _EVERY_CONTEXT or _plain(self.context) == _plain(context)


def _plain(context: str) -> str:
    return "" if context == _DEFAULT_CONTEXT else context


def topics(name: str) -> list[str]:
    """Return the names of topics that a subject of this name may belong to, the longest first; each at most 249
    characters.
    """
    ends = [len(name), *(index for index in range(len(name) - 1, 0, -1) if name[index] == "-")]
    return [name[:end] for end in ends if end <= 249 and is_legal(name[:end].encode())]


class Standing(Enum):
    """The decision about a subject that begins with a shadow's name."""

    ORDINARY = "an ordinary topic has a longer name that fits"
    READABLE = "a subject of the source is read"
    CLOSED = "the source is gone, or was created anew"
    FOREIGN = "the subject of that name belongs to another topic than the source"


@dataclass(frozen=True, slots=True)
class Claim:
    """A subject that begins with a shadow's name, and the source of that shadow."""

    subject: Subject
    shadow: str
    source: str

    @property
    def read(self) -> Subject:
        """The subject of the source that is read instead."""
        return self.subject.named(self.source + self.subject.name[len(self.shadow) :])

    @property
    def questions(self) -> list[str]:
        """The names of topics that have to be looked up for `standing`."""
        return [*_longer(self.subject, self.shadow), self.shadow, self.source, *_longer(self.read, self.source)]

    def standing(self, readable: Mapping[str, bool]) -> Standing:
        """Decide about the subject. `readable` contains those of `questions` that are topics or shadows; False: a
        closed shadow.
        """
        if any(name in readable for name in _longer(self.subject, self.shadow)):
            return Standing.ORDINARY
        if not readable.get(self.shadow, False):
            return Standing.CLOSED
        if any(name in readable for name in _longer(self.read, self.source)):
            return Standing.FOREIGN
        return Standing.READABLE

    def back(self, text: str) -> str:
        """Rename a subject in a response: the subject that was read gets the requested name. Its context is not
        changed.
        """
        found = Subject.parse(text)
        return str(found.named(self.subject.name)) if found.name == self.read.name else text


def _longer(subject: Subject, topic: str) -> list[str]:
    return [name for name in topics(subject.name) if len(name) > len(topic)]


def claim(subject: Subject, sources: Mapping[str, str]) -> Claim | None:
    """Return the claim of the shadow with the longest name that a subject begins with. `sources` by shadow."""
    shadow = next((name for name in topics(subject.name) if name in sources), None)
    return None if shadow is None else Claim(subject, shadow, sources[shadow])


class Related:
    """All shadows with their sources (`sources` by shadow), for lists of subjects."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources = sources
        self._shadows: dict[str, list[str]] = {}
        for shadow, source in sources.items():
            self._shadows.setdefault(source, []).append(shadow)
        self.names = sorted({*sources, *self._shadows})

    def may_hide(self, topic: str) -> bool:
        """Whether a topic's subjects could be confused with those of a shadow or source, because its name begins with
        theirs.
        """
        return any(name in self._sources or name in self._shadows for name in topics(topic)[1:])

    def shown(self, subject: Subject, readable: Mapping[str, bool]) -> Iterator[Subject]:
        """Yield the names under which a registered subject is read: its own, unless that belongs to a shadow, then
        those of shadows.

        `readable` as in `Claim.standing`, for `names` and every topic that `may_hide`.
        """
        own = claim(subject, self._sources)
        if own is None or own.standing(readable) is Standing.ORDINARY:
            yield subject
        for topic in topics(subject.name):
            for shadow in self._shadows.get(topic, ()):
                found = claim(subject.named(shadow + subject.name[len(topic) :]), self._sources)
                if found and found.read == subject and found.standing(readable) is Standing.READABLE:
                    yield found.subject
