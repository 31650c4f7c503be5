"""Summaries of messages that no longer fit a window."""
