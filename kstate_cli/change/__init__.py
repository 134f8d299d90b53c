"""The change engine: plan, stage, verify, switch, keep for undo. The only package that writes to a state directory."""
