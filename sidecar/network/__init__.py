"""Sockets in both directions: whole Kafka frames in, ordered answers out, back-pressure between the two.

The room calls a handler it is given and knows no API: what a frame means is decided above (`sidecar.gateway`).

Contracts that the rooms above rely on:

- *Ordering.* A client's answers leave in the order of its requests, whatever the order in which they were found
  (`ClientConnection.answered`). A request without an answer (acks=0) takes no place.
- *Borrowed frames.* A frame that arrives in the shared receive buffer is valid until the callback returns; code that
needs it
  longer copies it (`Frame.own`). A frame too large for that buffer was received into memory of its own and is never
  copied.
- *Back-pressure.* A full socket towards the client pauses the upstream connections that belong to it; a full socket
  upstream, or too many unanswered requests, pauses the client.
"""
