"""Rows of stores, read: from a store on disk to keys, values and records, whatever column family a row lies in."""
