"""Scikit-learn's small images of digits: three tasks that need no download."""
