"""Messages generated from `proto/` by `make proto`: `control_pb2` (the sidecar's own requests), `state_pb2` (what is kept)."""
