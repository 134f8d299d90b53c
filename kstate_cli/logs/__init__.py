"""Logs of stores: from where to where they go, where an offset lies in one, and what compaction has forgotten."""
