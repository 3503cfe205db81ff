"""Typed views over the tables of `sidecar.protocol.messages`: the base of the node's own requests.

A view has a version of a table, gives the values of the request, and converts the values of the answer. Fields without
a value are written as absent: zero, empty, or null if that is allowed.
"""

from abc import abstractmethod
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import ClassVar

from sidecar.protocol.caller import AnswerT_co, Request
from sidecar.protocol.ids import TopicPartition
from sidecar.protocol.primitives import Reader, Writer, at_once
from sidecar.protocol.schema import Message, Values


class View(Request[AnswerT_co]):
    """A request in one version of a table: `class EndTxn(View[int], of=END_TXN, version=3)`."""

    message: ClassVar[Message]

    def __init_subclass__(cls, *, of: Message | None = None, version: int = 0) -> None:
        super().__init_subclass__()
        if of is not None:
            cls.message, cls.api_key, cls.api_version = of, of.key, version
            cls.flexible = version >= of.flexible

    def asked(self) -> Values:
        """Return the values of the request; by default, the view's own fields."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @abstractmethod
    def answered(self, values: Values) -> AnswerT_co:
        """Convert the values of an answer. Raises `MalformedFrameError` if it does not fit this request."""

    def encode(self, writer: Writer) -> None:
        """See `Request.encode`."""
        self.message.request.write(writer, self.asked(), self.message.form(self.api_version))

    def decode(self, reader: Reader) -> AnswerT_co:
        """See `Request.decode`."""
        return at_once(self.decode_steps(reader))

    def decode_steps(self, reader: Reader) -> Generator[None, None, AnswerT_co]:
        """As `decode`, in slices."""
        return self.answered((yield from self.message.answer.read_steps(reader, self.message.form(self.api_version))))


def named(partitions: Mapping[str, Sequence[int]], indexes: str) -> list[Values]:
    """The topics of a request; `indexes` is the field's name for their partitions."""
    return [{"name": topic, indexes: found} for topic, found in partitions.items()]


def by_partition(topics: Iterable[Values], partitions: str = "partitions") -> dict[TopicPartition, Values]:
    """Return an answer's values by partition; `partitions` is the field's name for a topic's partitions."""
    return {
        TopicPartition(topic["name"], each["partition_index"]): each for topic in topics for each in topic[partitions]
    }
