"""Vision transformers that were trained before, tuned to another data set."""
