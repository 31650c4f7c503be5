"""Sessions over a WebSocket.

    handler.py          the socket
    connection.py       one connection, without its socket
    client_session.py   owner, session and conversation of a connection
    turn_requests.py    frames that start or interrupt turns
    watch_list.py       the conversations that a connection watches
    outbox.py           frames to send, by priority
    watches.py          the position of one connection in one feed
    hub.py              state that all connections share
    services.py         managers, assistants and transcribers for connections
    turns.py            turns in progress
    feeds.py            changes of watched conversations
    diff.py             the difference between two states of a conversation
    speech.py           audio in pieces
    limits.py           limits of a connection

`aforesaid.protocol.live` defines the frames; `docs/reference/websocket.md` describes them.
"""
