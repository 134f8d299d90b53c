"""What starts processes: shells, workers, others that are killed."""
