"""The tree on disk: applications, tasks, stores, segments, locks. Finds and describes; never writes."""
