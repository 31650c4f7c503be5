"""HTTP and WebSocket server over the manager.

An HTTP request passes these files in order:

    app.py              create_app: middleware around Litestar around the routes
    instrumentation.py  the middleware: metrics, logs, traces, request ids
    requests.py         authenticate, limit, parse, call the route, convert errors
    routes/             the routes by noun; each calls the manager
    responses.py        responses and problems

They use:

    endpoints.py        how a route is declared, and the call that it gets
    decoding.py         JSON and messages
    idempotency.py      `Idempotency-Key`
    service.py          state that all requests share
    auth/               API keys, JSON Web Tokens, authentication
    limits.py           rates, concurrency, resources
    shared_rates.py     rates of all processes on one store
    openapi.py, pages.py  the OpenAPI document, generated from the routes, and its HTML page

`live/` is the WebSocket. `connections.py` limits connections before authentication. `process.py` has
processes, sockets, signals and graceful shutdown.
"""
