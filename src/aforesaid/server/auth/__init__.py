"""Authentication and authorization.

callers.py         an authenticated caller with its owners and scope
keys.py            API keys
tokens.py          JSON Web Tokens
local.py           requests from this machine on a server without keys
authenticator.py   from request headers to a caller
"""
