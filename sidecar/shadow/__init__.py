"""Shadow topics: read-only names for another topic's log, with their own cursors (PIP-180 on plain Kafka)."""
