"""The tables by API key."""

from typing import Final

from sidecar.protocol.messages import (
    admin,
    cluster,
    groups,
    logs,
    new_groups,
    security,
    shares,
    telemetry,
    transactions,
)
from sidecar.protocol.schema import Message

MESSAGES: Final = {
    table.key: table
    for module in (admin, cluster, groups, logs, new_groups, security, shares, telemetry, transactions)
    for table in vars(module).values()
    if isinstance(table, Message)
}
