"""Probes that an experiment can name: they write numbers about a run while it trains."""
