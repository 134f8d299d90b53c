"""
A generator of kills: real applications die in the middle of their work, and every store they leave is compared.

Several applications of one release run in one JVM, which halts after a random number of records. kstate predicts the next
start (``check``), migrates, and restores; real Streams starts on a copy. What each store holds then is compared with an
independent replay of its changelog, in Java, with Streams' own classes (``java/interop/Replay.java``).

``python -m tests.kills --seeds 0-49`` runs as many seeds; ``test_kills.py`` runs a few.
"""
