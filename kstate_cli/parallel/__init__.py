"""Work that several processes share: the processes, how far they are, and what this host has for them."""
