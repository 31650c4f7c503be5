"""What each provider requires of a request's messages: one module per dialect, one comment per rule."""
