"""The rare APIs that a node must look into, as tables for `sidecar.protocol.schema`, from Kafka's message definitions.

`groups` · `transactions` · `admin`. Field names are those of the definitions in snake case. APIs that pass as they are
have no table.
"""
