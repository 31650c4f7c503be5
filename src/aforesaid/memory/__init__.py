"""Open a memory; one manager per owner; turns, sessions, watching, sliding windows, chat history."""
