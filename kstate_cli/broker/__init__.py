"""What a broker says of its logs: asked now, or written down earlier."""
