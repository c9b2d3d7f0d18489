"""Count what a function does, where seconds would depend on the machine."""

import sys


def count_calls(function):
    """Return how many functions a function calls, those written in C included."""
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls
