"""A language model of characters, on text that ships with Python."""
