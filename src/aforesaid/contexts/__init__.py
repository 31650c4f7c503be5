"""Add notes and the summary to a window."""
