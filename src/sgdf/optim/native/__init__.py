"""The native step: the C code, how it is built, and how tensors are passed to it."""
