"""What `sidecar doctor` looks at, one module per neighbour of a node. They look and change nothing."""
