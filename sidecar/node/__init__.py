"""One node: the rooms composed, started, drained; its settings read again; and the calls of its HTTP side.

Empty on purpose: `sidecar.node.port` can be imported without loading a whole node.
"""
