"""The HTTP side of a node: health, metrics, and REST for people and tools.

It calls the node through `sidecar.node.view.NodeView` and does not know how the node finds its answers. It never
connects to Kafka or Redis.
"""
