"""The report on the runs of a store: a page, tables and plots, with the runs behind each number.

``findings`` reads and arranges the runs, ``statistics`` and ``targets`` compute, ``tables``,
``paper``, ``curves`` and ``seed_plot`` make the tables and plots, ``contents`` puts them together,
and ``write`` writes the files. ``search`` and ``range_test`` report on searches.
"""
