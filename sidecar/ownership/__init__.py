"""Who owns a topic, or a partition with an owner of its own: the states, the events, and what follows. Pure."""
