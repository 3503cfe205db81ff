"""The ordered forwarder: governed batches to their leaders, in order, through failures. Knows no owners.

`sequences` a batch, and the sequence that it is stamped with (pure) · `lane` the order of one partition, and what it
does after its first failure · `forwarder` lanes and connections to leaders, requests that go whole · `gathered` the
batches of many lanes in one request · `outcome` what became of a batch.

A partition's lane never reorders: at the first failure it is muted; the batches in flight return, and those to be
retried are sent one by one in order before anything new. Lanes do not wait for each other. Modelled on the retries of
Sarama's `async_producer.go`.
"""
