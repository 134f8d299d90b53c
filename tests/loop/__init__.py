"""A fuzzer of the loop dump, restore, standby: a real broker whose cleaner runs, and an independent model of its logs."""
