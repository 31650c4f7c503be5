"""Who asks, and for whom they may: API keys and JSON Web Tokens. Below: the store. Above: the routes.

callers.py   who a request comes from, and how far they reach
keys.py      API keys: made, listed, revoked, looked up
tokens.py    JSON Web Tokens and the keys that sign them
gate.py      from the headers of a request to a caller
"""
