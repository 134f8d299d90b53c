"""What is done to an application again and again: which commands are due, one after the other, and what came of them.

Only commands of kstate are run, each in a process of its own: what they may and may not do is theirs to know.
"""
