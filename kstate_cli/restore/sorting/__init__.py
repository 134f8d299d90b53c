"""The sort engine: one slice of a changelog partition becomes sorted files, in bounded memory."""
