"""The node's own requests to Kafka: small, typed, each in one fixed version that brokers from 3.0 to 4.x serve.

A request is a frozen dataclass: a view over its table (`sidecar.protocol.views`), or with Produce and Fetch over what
reads these by hand. Error codes stay plain integers, so that a code of a newer broker passes. Clients' requests are no
concern of this package.
"""
