"""The node's own requests to Kafka: small, typed, each in one fixed version that brokers from 3.0 to 4.x serve.

A request is a frozen dataclass: a view over its table (`sidecar.protocol.views`), or, for Produce and Fetch, over their
hand-written modules. Error codes stay plain integers, so that codes of newer brokers pass. This package is not for
clients' requests.
"""
