"""Finding what was said: from text to terms, from terms to a ranking, from a ranking to snippets.

    analysis    text → the terms that are indexed and asked for, the same on every store
    stemming    a word → its stem

Below: dialects, contracts. Above: the stores that index, and the manager.
"""
