"""Read the rows of stores: from a store on disk to keys, values and records, whichever column family has a row."""
