"""Kafka's wire format without IO: primitives, headers, the API table, hot codecs, record batches and error codes.

Nothing here opens a socket, awaits or knows what a node does with a request.
"""
