"""Arguments and options: how they are declared, parsed and checked."""
