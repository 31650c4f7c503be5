"""Finding what was said: from text to terms, from terms to a ranking, from a ranking to snippets.

    analysis       text → the terms that are indexed and asked for, the same on every store
    stemming       a word → its stem
    dates          a question → the times that it names
    questions      what is asked for: the question and its filters, checked
    portable       an index in this process, for stores that have none
    encoders       text → vectors
    indexing       the background indexer, which writes vectors
    comparing      vectors in one matrix
    vectors        the vectors of one owner, as they are kept and caught up with
    ranking        candidates by words and by meaning → one order
    passages       a place in the log → words that can be cited
    searching      the search of one owner, from question to passages
    conversations  conversations that match, or are alike
    holding        what is held in memory of each owner, within bounds
    room           what the searches of all owners share

Below: dialects, contracts. Above: the stores that index, and the manager.
"""
