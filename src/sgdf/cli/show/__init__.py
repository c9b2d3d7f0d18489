"""Tables and lines for the terminal, one module for each kind of content."""
