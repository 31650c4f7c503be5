"""Master keys, and sealers for archives."""
