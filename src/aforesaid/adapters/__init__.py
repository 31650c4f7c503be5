"""Adapters: Aforesaid as the store of other frameworks, one module per framework.

Nothing else imports an adapter, and no adapter imports another. Each needs the extra of its framework.
"""
