"""From results to a page: tables, plots, and what was aimed at. Pure functions over what `results/` holds."""
