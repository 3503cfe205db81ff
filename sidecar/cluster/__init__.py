"""The two clusters a node stands between: Kafka's brokers upstream, and the nodes that clients see as brokers.

`view` what upstream last said · `upstream` the node's own short calls · `nodes` live nodes and placement · `resolver`
what a topic name means here. No room below knows that names or addresses are ever anything but Kafka's own.
"""
