"""Shadow topics: read-only names for another topic's log, with cursors of their own (PIP-180 on plain Kafka)."""
