"""Live: sessions over a WebSocket. What is said comes in, answers and everything that happens go out.

    handler.py       the socket: bytes in, bytes out
    connection.py    one connection: what each frame does; no socket
    telling.py       what a connection is told, when there is room to tell it
    watches.py       one connection's reading of one conversation
    guests.py        who said hello
    room.py          what all connections share, and who looks after them
    turns.py         answers under way
    feeds.py         what happens in watched conversations
    places.py        what happened between two looks, as a pure function
    speech.py        audio in pieces
    limits.py        how much, how often, how long

The frames are in `aforesaid.protocol.live`, described in `docs/reference/websocket.md`. Below: the
manager, sessions, agents, the gate. Above: the application.
"""
