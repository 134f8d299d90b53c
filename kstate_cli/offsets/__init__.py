"""Offsets of stores: where they are, whose they are, whether a task was left clean, and how a release keeps them."""
