"""
Generated worlds: real applications with random topologies die, and random commands, starts and edits follow.

A seed determines a world: its release, guarantee, topology, input, and steps. After each step the rows of each store are
compared with an independent replay of its changelog, in Java, with the converters of Kafka Streams (``java/interop/Compare.java``).
``python -m tests.worlds --count N`` runs the next N worlds, and keeps a record; ``test_worlds.py`` runs a few.
"""
