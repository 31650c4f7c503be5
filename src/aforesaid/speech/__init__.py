"""Spoken answers: the text to speak, and what was heard of an interrupted answer."""
