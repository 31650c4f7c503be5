"""Prepare messages for storing: parse, count tokens, move images out, redact."""
