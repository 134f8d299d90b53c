"""Moves stores out, so that the next start, or a restoration, rebuilds them from the earliest offset."""
