"""`sidecar bench`: the command, the measurements, their topics, and the client."""
