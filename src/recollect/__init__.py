"""Recollect: conversation memory for assistants."""
