"""Work that several processes share: the processes, and how far they are."""
