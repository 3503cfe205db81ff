"""Sockets in both directions: whole Kafka frames in, ordered answers out, back-pressure between the two.

The room passes frames to a handler and knows no API: `sidecar.gateway` interprets them.

Contracts that the rooms above rely on:

- *Ordering.* A client's answers are written in the order of its requests, even if they become ready in another order
  (`ClientConnection.answer_ready`). A request without an answer (acks=0) is not counted.
- *Borrowed frames.* A frame in the shared receive buffer is valid until the callback returns; code that needs it longer
  copies it (`Frame.own`). A frame too large for that buffer is received into memory of its own; `own` does not copy it.
- *Back-pressure.* A full socket towards the client pauses the upstream connections that belong to it; a full socket
  upstream, or too many unanswered requests, pauses the client.
"""
