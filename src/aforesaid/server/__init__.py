"""The server: HTTP over the manager. Thin: parse, call the manager, render.

    app.py          create_app: everything put together, as a Litestar application
    endpoints.py    what a route is: its path, what it takes, what it answers, who may
    calls.py        one request on its way: whose data, which body, which answer
    auth/           who asks: API keys, JSON Web Tokens
    routes/         the routes, by noun
    openapi.py      the OpenAPI document, made from the routes
    running.py      processes, sockets, and the way down

Below: the manager, the agents, the wire's forms (`aforesaid.protocol`). Above: the command line.
"""
