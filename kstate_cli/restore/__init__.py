"""Rebuilding state stores from dumps of their changelogs."""
