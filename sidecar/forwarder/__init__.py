"""The ordered forwarder: governed batches to their leaders, in order, through failures. Knows no owners.

`sequences` which sequence a batch is stamped with (pure) · `lane` the order of one partition: window, mute, retry ·
`brokers` one ProduceRequest per leader and turn, with the batches of many lanes · `forwarder` the composition.

A partition's lane never reorders: at the first failure it is muted, what was in flight comes back, and what has to go
again goes one by one in order before anything new. Lanes do not wait for each other. After Sarama's producer, whose
retries have the same shape.
"""
