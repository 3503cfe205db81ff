"""The two clusters that a node connects: Kafka's brokers upstream, and the nodes that clients see as brokers.

`view` the newest metadata of upstream · `upstream` the node's own short calls · `nodes` live nodes and placement ·
`resolver` the kind of a topic by its name. Rooms below this one treat all names and addresses as Kafka's own.
"""
