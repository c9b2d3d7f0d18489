"""What the runs of a store came to: a page, tables and figures, with the evidence behind each.

``data`` arranges the runs, ``statistics`` and ``targets`` compute, ``tables`` and ``figures``
say it, ``contents`` puts it together, and ``page`` and ``formats`` write it down.
"""
