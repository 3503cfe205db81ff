"""What commands know of the REST interface by themselves, held against its document."""

from sidecar.admin.openapi import document
from sidecar.cli.topic import ACCESS_MODES, SCOPES

SCHEMAS = document("0.1.0")["components"]["schemas"]


def test_a_policy_has_the_words_that_a_command_takes():
    fields = SCHEMAS["Policy"]["properties"]
    assert (tuple(fields["access_mode"]["enum"]), tuple(fields["scope"]["enum"])) == (ACCESS_MODES, SCOPES)
