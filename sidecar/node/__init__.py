"""One node: the rooms composed, started, drained; its settings read again; and what its HTTP side may ask of it.

Empty on purpose: `sidecar.node.port` is imported where a node's machinery has no place.
"""
