"""kstate on directories that real releases wrote (tests/golden), run as its users run it: the command line."""
