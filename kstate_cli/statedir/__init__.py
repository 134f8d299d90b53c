"""The tree on disk: applications, tasks, stores, locks; what is wrong there, whose each changelog is. Never writes."""
