"""Measurements, run by hand; every figure is a ratio of two sides measured in turns in one run."""
