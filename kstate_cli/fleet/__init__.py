"""``kstate fleet``: which host has which task, from what ``kstate ls -o json`` said on each."""
