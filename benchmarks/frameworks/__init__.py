"""Each framework's own store next to our adapter."""
