"""One RocksDB at a time, through rocksdict: shadow reads that change nothing, and writes to staged copies.

rocksdict is imported in functions, and by no module: commands that open no database import these modules too, and
``kstate version`` must be able to report a library that cannot be loaded.
"""
