"""How close the estimates of filters are to the gradient that they stand for."""
