"""The node as its HTTP side sees it, over the rooms; values and the ways to fail are in `sidecar.node.port`.

Names are checked before a call is made: what arrives here is a legal Kafka topic name, or `PREFIX*` where a method says
so, and never an internal topic (`__…`) in a method that changes something.
"""

from sidecar.node.view.node import NodeView

__all__ = ["NodeView"]
