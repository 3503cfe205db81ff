"""A client's identity and what it may do: TLS, SASL both ways, principals, Kafka's ACLs.

Others open the connections: this room gives them contexts, messages and verdicts. It imports `sidecar.protocol` alone.
"""
