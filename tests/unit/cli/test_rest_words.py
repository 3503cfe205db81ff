"""What commands know of the REST interface by themselves, held against its document."""

from collections.abc import Sequence
from typing import Any

import pytest

from sidecar.admin.openapi import document
from sidecar.cli.cursor import CURSORS
from sidecar.cli.output import Column
from sidecar.cli.refusals import COLUMNS as REFUSALS
from sidecar.cli.shadow import SHADOWS
from sidecar.cli.status import CHECKS, CLIENTS
from sidecar.cli.topic import ACCESS_MODES, OWNERS, PRODUCERS, REFUSED, SCOPES, TOPICS, WAITING

SCHEMAS = document("0.1.0")["components"]["schemas"]
POSITIONS = SCHEMAS["Cursor"]["properties"]["partitions"]["additionalProperties"]
NUMBERED = {"properties": {"partition": {}}}
"""What stands by partition is shown with its partition."""


def test_a_policy_has_the_words_that_a_command_takes():
    fields = SCHEMAS["Policy"]["properties"]
    assert (tuple(fields["access_mode"]["enum"]), tuple(fields["scope"]["enum"])) == (ACCESS_MODES, SCOPES)


@pytest.mark.parametrize(
    ("columns", "schemas"),
    [
        (TOPICS, [SCHEMAS["Topic"]]),
        (PRODUCERS, [SCHEMAS["Producer"]]),
        (OWNERS, [SCHEMAS["PartitionOwner"], NUMBERED]),
        (WAITING, [SCHEMAS["Topic"]["properties"]["waiting"]["items"]]),
        (SHADOWS, [SCHEMAS["Shadow"]]),
        (CURSORS, [SCHEMAS["Cursor"], POSITIONS, NUMBERED]),
        (CHECKS, [SCHEMAS["Check"]]),
        (CLIENTS, [SCHEMAS["Client"]]),
        (REFUSALS, [SCHEMAS["Refusal"]]),
        (REFUSED, [SCHEMAS["Refusal"]]),
    ],
)
def test_a_column_is_a_field_of_the_document(columns: Sequence[Column], schemas: Sequence[dict[str, Any]]):
    paths = [each if isinstance(each, str) else each[1] for each in columns]
    unknown = [path for path in paths if isinstance(path, str) and not any(has(each, path) for each in schemas)]
    assert unknown == []


def has(schema: dict[str, Any], path: str) -> bool:
    name, _, rest = path.partition(".")
    found = schema["properties"].get(name)
    if found is None or not rest:
        return found is not None
    return has(SCHEMAS[found["oneOf"][0]["$ref"].rpartition("/")[2]], rest)
