"""Stores for conversations, one module or package each. They never import each other."""
