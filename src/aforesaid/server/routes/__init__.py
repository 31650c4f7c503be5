"""The routes, by noun. Each handler parses nothing and renders little: it calls the manager."""
