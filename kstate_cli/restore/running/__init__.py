"""Carry a plan out: slices, the engines that sort them, steps that ingest their files, and resuming."""
