"""
A random walker: sequences of commands, starts of Streams, accidents and kills, held against a small model of a directory.

`python -m tests.walker --seeds 0-99` walks as long as one likes; `test_walker.py` walks a few fixed seeds.
"""
