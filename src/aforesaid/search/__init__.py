"""Search over an owner's messages: terms and vectors, one ranking, quotable passages.

analysis       text → terms, the same on every store
stemmer        word → stem
dates          question → the periods it names
queries        the question and its filters, validated
memory_index   an inverted index in this process, for stores without one
encoders       text → vectors
indexing       the background indexer, which writes vectors
vector_matrix  vectors in one matrix
signs          the signs of vectors, which find the few that can be near
vectors        the stored vectors of one owner and their copy in memory
bm25           counts of terms → how well the words match
ranking        candidates by words and by meaning → one order
passages       an entry of the log → a quotation
searcher       the search of one owner, from question to passages
conversations  conversations that match a question or resemble another
resources      shared by the searches of all owners: encoder, indexer, bounded caches
"""
