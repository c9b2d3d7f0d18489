"""How results look: tables, plots, styles and pages, for reports of any kind."""
