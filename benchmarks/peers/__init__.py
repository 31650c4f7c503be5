"""Other memories, each driven through the same few calls, in a process and an environment of its own.

What runs in a peer's environment (`contract`, `texts`, `yardstick`, `jobs`, `worker` and the adapters) stands
on the standard library and that peer alone. `environments`, `roster` and `driving` are on our side.
"""
