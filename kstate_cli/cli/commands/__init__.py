"""One module for each command: it parses, calls the package that does the work, and renders the result."""
