"""The node as its HTTP side sees it, over the rooms; values and errors are in `sidecar.node.port`.

The caller checks names before a call: every name is a legal Kafka topic name, or `PREFIX*` if the method allows it, and
never an internal topic (`__…`) in a method that changes something.
"""

from sidecar.node.view.node import NodeView

__all__ = ["NodeView"]
