"""What deduplication by sequence id costs: throughput beside the same topic without it, bytes per name, recovery."""
