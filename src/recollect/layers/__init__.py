"""Stores around stores: each wraps a backend, is a backend, and passes the same contract."""
