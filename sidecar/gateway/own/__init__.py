"""The sidecar's own APIs on the Kafka port: one module per API, what they share beside them."""
