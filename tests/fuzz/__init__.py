"""Fuzzing: bytes that nobody wrote, for every decoder and parser of kstate.

`targets.py` is the table of what is decoded, `corpus.tar.xz` has real bytes for each entry, `mutations.py` changes them, and
`python -m tests.fuzz` runs libFuzzer through atheris. `record.jsonl` has one line for each run.
"""
