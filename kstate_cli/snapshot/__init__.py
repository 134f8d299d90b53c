"""Snapshots: the files of stores in a repository, each stored once, and the restoration of stores from them."""
