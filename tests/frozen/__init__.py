"""
What kstate says of every golden directory, kept as files: a change that is to change nothing is held against them.

`pytest tests/frozen` runs every reading command and every plan on every directory of tests/golden, carries some of the
plans out, and compares. Three things are compared of a command: what it printed, what it said on standard error, and its
exit code. Where they differ, the difference is shown line by line, the same difference once.

    golden/NAME.jsonl   for people and `git diff`: a line for each command with its exit code and the digest of what it
                        said; of small directories and of the commands in `commands.SHOWN` also all of it
    golden/NAME.xz      all of it for all commands, which the test takes differences from (`xz -dc`, or `git config
                        diff.xz.textconv 'xz -dc'`)

`KSTATE_FREEZE=write pytest tests/frozen` writes both anew; the differences are printed then too, for the review of what
is kept. What differs between two runs in any case is taken out in `normal.py`, and nowhere else.
"""
