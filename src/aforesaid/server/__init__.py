"""HTTP and WebSocket server over the manager.

app.py          create_app: the Litestar application
endpoints.py    a route: path, parameters, body, response, required scope
calls.py        one authenticated request, and the service that all requests share
auth/           API keys, JSON Web Tokens, authentication
routes/         the HTTP routes by noun
live/           the WebSocket
openapi.py      the OpenAPI document, generated from the routes
process.py      processes, sockets, signals, graceful shutdown
"""
