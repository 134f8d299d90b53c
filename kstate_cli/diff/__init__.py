"""``kstate diff``: what two application directories hold differently, row by row."""
