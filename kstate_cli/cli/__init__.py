"""The command line: commands, what they print, their options, and the frame around them."""
