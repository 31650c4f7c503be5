"""Notes about an owner that outlive a conversation."""
