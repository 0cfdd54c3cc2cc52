"""Tools for models, from servers that speak the Model Context Protocol (MCP).

The window starts `host`, one child process, which runs or connects all servers and calls tools.
`settings`, `tool` and `plain_text` are for both sides. Only `host` and `transports` import mcp.
May import: backend.protocol, system, text, anyio, httpx2, mcp, pydantic
(tests/test_imports.py).
"""
