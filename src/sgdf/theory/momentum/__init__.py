"""Momentum as an estimator of the gradient: Section 2 and Appendix A of the paper."""
