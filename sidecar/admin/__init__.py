"""The HTTP side of a node: health, metrics, and REST for people and tools.

It asks the node through `sidecar.node.view.NodeView` and knows nothing of how the node finds its answers. It never
speaks to Kafka or Redis.
"""
