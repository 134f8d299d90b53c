"""Upgrade and downgrade: refuse or rewrite what the target release cannot read, and move offsets to its place."""
