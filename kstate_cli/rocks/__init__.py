"""One RocksDB at a time, through rocksdict: shadow reads that change nothing, and writes to staged copies."""
