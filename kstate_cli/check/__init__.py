"""What the next start of a release does with a directory: a prediction for each store, and findings with rules."""
