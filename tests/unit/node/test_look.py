"""The look at Redis at the start and every half minute: what serves goes on looking, at its brokers too."""

from typing import Any

import pytest
import structlog

from metadata import MetadataMisconfigured, MetadataProtocolError
from sidecar.node.connecting import StartError
from sidecar.node.node import Node
from sidecar.telemetry.hooks import NodeMetrics


class PaperStore:
    """Answers with an error."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def check_server(self) -> None:
        raise self._error


@pytest.mark.parametrize(
    ("error", "keeps"), [(MetadataProtocolError("ERR no upstream host"), True), (MetadataMisconfigured("lru"), False)]
)
async def test_an_answer_that_is_none_of_redis_ends_nothing(error: Exception, keeps: bool) -> None:
    node: Any = object.__new__(Node)
    node.store, node._redis_keeps, node.one_redis = PaperStore(error), True, None
    node.metrics, node._log = NodeMetrics({}, "1"), structlog.get_logger()
    await node._look_at_redis()
    assert node._redis_keeps is keeps


@pytest.mark.parametrize("error", [MetadataProtocolError("no upstream host"), MetadataMisconfigured("refuses INFO")])
async def test_a_node_that_starts_on_such_a_redis_ends_with_its_sentence(error: Exception) -> None:
    node: Any = object.__new__(Node)
    node.store = PaperStore(error)
    with pytest.raises(StartError) as ended:
        await node._check_redis()
    assert str(ended.value) == str(error)
