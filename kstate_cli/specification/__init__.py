"""What the bytes of a state directory do not tell: each store's kind, changelog, retention and subtopology."""
