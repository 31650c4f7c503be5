"""One agent per model provider, through the provider's own SDK."""
