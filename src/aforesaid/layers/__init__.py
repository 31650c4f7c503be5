"""Layers: each wraps a backend, is a backend, and passes the same tests as a store.

From the outside in: audited, cached, encrypted, resilient, and then the store itself.
"""
