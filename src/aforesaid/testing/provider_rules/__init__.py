"""What each provider demands of a request's messages: one module a dialect, one comment a rule."""
