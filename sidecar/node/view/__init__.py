"""The node as its HTTP side sees it: `sidecar.node.node_port`, implemented over the rooms."""

from sidecar.node.view.node import NodeView

__all__ = ["NodeView"]
