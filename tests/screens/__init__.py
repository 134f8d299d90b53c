"""
What terminals of 80 x 24 and of 200 x 50 show of each command, plain (NO_COLOR) and coloured, kept as text.

`pytest tests/screens` runs the commands of `test_screens.py` on golden directories and compares with `SIZE-STYLE.txt`: a
command, then its lines in the order of the terminal, those of standard error behind a `!`. The escape character is written
as `␛`, the folder of the test as `DIR`, times and what only this run has as zeros.

`KSTATE_FREEZE=write pytest tests/screens` writes the files anew; the difference is part of the commit.
"""
