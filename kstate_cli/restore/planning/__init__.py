"""Plan a restoration: read a snapshot of directory and dump, judge each store by rules, return the plan."""
