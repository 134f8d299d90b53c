"""Facts about the logs of a broker: requested now, or recorded earlier."""
