"""Writer slots: producer ids and epochs that nodes alone use, and the fence that makes Kafka refuse a lost one.

Knows no owners: `exclusive` decides which session takes a slot, and when; `forwarder` and `changelog` write under it.
"""
