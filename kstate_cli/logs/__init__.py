"""Logs of stores: their bounds, where an offset is in them, and the deletes that compaction forgot."""
