"""How runs are kept on disk: folders, locks, files that are whole or absent. Needs no torch."""
