"""``kstate maintain``: run the commands that are due, one after the other, and record their outcomes.

Each command of kstate runs in a process of its own. Its own rules decide what it may do.
"""
