"""The routes by noun. Each handler calls the manager and renders the result."""
