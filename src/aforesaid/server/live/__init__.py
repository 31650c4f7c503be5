"""Sessions over a WebSocket.

    handler.py          the route, the socket, and the service for the hub
    connection.py       one connection, without its socket
    client_session.py   owner, session and conversation of a connection
    turn_requests.py    frames that start or interrupt turns: text, audio
    watch_list.py       the conversations that a connection watches
    outbox.py           frames to send, by priority
    watches.py          the position of one connection in one feed
    hub.py              state that all connections share
    turns.py            turns in progress
    presence.py         who watches and types, in all processes
    feeds.py            changes of watched conversations
    diff.py             the difference between two states of a conversation

`aforesaid.protocol.live` defines the frames; `docs/reference/websocket.md` describes them.
"""
