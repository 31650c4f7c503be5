"""Dialects: how providers write messages. In, out, and nothing else."""
