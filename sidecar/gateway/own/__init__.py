"""The sidecar's own APIs on the Kafka port: the APIs' modules, and modules that they share."""
