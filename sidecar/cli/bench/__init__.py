"""`sidecar bench`: the command, what is measured, where, and by which client."""
