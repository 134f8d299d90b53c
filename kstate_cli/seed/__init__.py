"""Write the changelog topics of another application from a dump, and copy the offsets of its input topics."""
