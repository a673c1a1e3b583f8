"""Faster twins of the formulas in `layers/`, with the same results: one file for each."""
