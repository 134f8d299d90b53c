"""Declare, parse and check arguments and options."""
