"""Work that several processes share, and its progress."""
