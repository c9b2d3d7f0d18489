"""What a step costs: time, memory, operations."""
