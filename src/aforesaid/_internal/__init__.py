"""Private helpers: background tasks, deadlines, threads, locks. They import nothing of ours but errors."""
