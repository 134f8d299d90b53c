"""One RocksDB at a time, through rocksdict: shadow reads that change nothing, and writes to staged copies.

Functions import rocksdict, and no module does: commands that open no database import these modules too, and ``kstate
version`` reports a library that cannot be loaded.
"""
