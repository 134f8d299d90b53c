"""``kstate dump``: changelogs from a broker into a dump that grows (docs/internals/changelogs.md#growing)."""
