"""The simulated Kafka and a real one get the same random requests and faults, and have to answer alike.

`generate` makes a program from a seed: steps that name topics, producers, groups and members by number. `player` plays
a program on a `Trouble`, simulated or real, step by step: it puts in the ids, epochs, sequences and offsets that the
earlier answers on the same side have given. `plain` makes answers comparable. `compare` plays on both sides, stops at
the first difference, and drops steps while the difference stays. The command is `make differential`.
"""
