"""The checks of `sidecar doctor`, one module per neighbour of a node. They change nothing."""
