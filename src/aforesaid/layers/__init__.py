"""Layers: each wraps a backend, is a backend, and passes the same contract tests as a store.

From the outside in: audited, cached, encrypted, resilient, timed, and then the store itself.
"""
