"""Writer slots: producer ids and epochs that only nodes use, and the fence that makes Kafka refuse an older epoch.

Knows no owners: `exclusive` decides which session takes a slot, and when; `forwarder` and `changelog` write under it.
"""
