"""kstate with system calls that fail and with sudden death, one call at a time."""
