"""The ordered forwarder: governed batches to their leaders, in order, through failures. Knows no owners.

`sequences` the sequence that a batch is stamped with (pure) · `lane` a batch, and the order of one partition ·
`recovery` a lane after its first failure: mute, retry · `forwarder` lanes and connections to leaders, requests that go
whole · `gathered` the batches of many lanes in one request · `outcome` what became of a batch.

A partition's lane never reorders: at the first failure it is muted; the batches in flight return, and those to be
retried are sent one by one in order before anything new. Lanes do not wait for each other. Modelled on the retries of
Sarama's `async_producer.go`.
"""
