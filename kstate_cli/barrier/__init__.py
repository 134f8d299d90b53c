"""Hosts that wait for each other, in a folder or below an object prefix that all of them reach."""
