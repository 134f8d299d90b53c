"""Move every store to the task of the sub-topology that has it in the new topology."""
