"""Values: messages, conversations, contexts, contacts, lifetimes, ids, time. Frozen and equal by content."""
