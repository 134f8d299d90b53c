"""Restoring on real Spark: attempts that die, clusters, dumps in any order, memory."""
