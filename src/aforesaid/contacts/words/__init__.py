"""Words that tell names from other words, in English, German, French, Spanish and Dutch: data, no rules.

Everything is written folded: lower case, without accents. Written for this project from general knowledge.
"""
