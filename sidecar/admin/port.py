"""The old place of `sidecar.node_port`."""

from sidecar.node_port import *  # noqa: F403
