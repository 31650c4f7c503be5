"""Real servers for tests, each private to the run."""
