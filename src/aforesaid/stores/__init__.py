"""Stores: where conversations are kept. One module or package each; they never import each other."""
