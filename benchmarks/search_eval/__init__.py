"""How well search finds what was said: labelled conversations in, figures out. `make eval` runs it.

    labelled    the sets, as owners with conversations and questions
    asking      every question, through the public door, by each method
    simple      FTS5, to compare with
    calibration coefficients of relevance, fitted on some of the sets
    households  short histories with paraphrased questions
    encodings   vectors kept between runs
    training    weights from some of the sets, measured on the others
    floor       whether search can find nothing
    figures     recall, nDCG and hits, with an interval
    report      a table and a plot for docs/search-quality.md

The data are read where they are and never copied.
"""
