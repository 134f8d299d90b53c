"""Upgrade and downgrade: what the target cannot read is refused or rewritten, and offsets go to where it keeps them."""
