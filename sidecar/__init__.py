"""A sidecar in front of Apache Kafka: exclusive producers for unmodified clients."""

__version__ = "0.1.0"
