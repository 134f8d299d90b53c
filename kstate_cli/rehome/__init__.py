"""The topology was changed: every store goes to the task of the sub-topology that has it now."""
