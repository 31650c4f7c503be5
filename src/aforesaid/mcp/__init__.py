"""Memory as a Model Context Protocol server: seven tools, resources and prompts over one owner's data.

    results    what tools return
    tools      the tools, on a manager
    server     the protocol server around them

Needs the extra `mcp`. Nothing here is imported before a server is created.
"""
