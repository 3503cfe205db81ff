"""Shadow topics: read-only names over another topic's log, with cursors of their own (PIP-180 on plain Kafka)."""
