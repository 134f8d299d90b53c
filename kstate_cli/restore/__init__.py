"""Restore state stores from dumps of their changelogs.

``planning`` decides what becomes of each store, ``running`` carries the plan out, ``sorting`` turns slices of
changelogs into sorted files. They share ``jobs`` (what a task gets and returns) and ``staging`` (where its files are).
"""
