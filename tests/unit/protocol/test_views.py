"""Views over tables, whatever they ask; each call has its bytes compared with kio's in test_calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sidecar.protocol import limits
from sidecar.protocol.messages.groups import LIST_GROUPS
from sidecar.protocol.primitives import Reader, Writer
from sidecar.protocol.views import View

if TYPE_CHECKING:
    from sidecar.protocol.schema import Values


class _Plain(View[list[str]], of=LIST_GROUPS, version=2):
    def asked(self) -> Values:
        return {}

    def answered(self, values: Values) -> list[str]:
        return [group["group_id"] for group in values["groups"]]


class _Flexible(View[int], of=LIST_GROUPS, version=4):
    state: str

    def asked(self) -> Values:
        return {"states_filter": [self.state]}

    def answered(self, values: Values) -> int:
        return values["error_code"]


def test_a_view_has_the_key_of_its_table_and_the_header_of_its_version() -> None:
    assert (_Plain.api_key, _Plain.api_version, _Plain.flexible) == (16, 2, False)
    assert (_Flexible.api_key, _Flexible.api_version, _Flexible.flexible) == (16, 4, True)


def test_a_view_writes_the_fields_that_its_version_has() -> None:
    plain, flexible = Writer(), Writer()
    _Plain().encode(plain)
    _Flexible("Empty").encode(flexible)
    assert (plain.finish(), flexible.finish()) == (b"", b"\2\6Empty\0")


@pytest.mark.parametrize("count", [limits.SLICE, 2 * limits.SLICE])
def test_others_have_their_turn_while_an_answer_to_the_node_itself_is_read(count: int) -> None:
    groups = [{"group_id": str(number), "protocol_type": "consumer"} for number in range(count)]
    answer = LIST_GROUPS.encode_answer(2, 7, {"groups": groups})
    assert sum(1 for _ in _Plain().decode_steps(Reader(answer, 8))) == 4 * count // limits.SLICE
    assert _Plain().decode(Reader(answer, 8)) == [str(number) for number in range(count)]
