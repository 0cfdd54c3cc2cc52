"""A local server that speaks OpenAI's protocol: models, chat completions, completions.

`protocol.py` reads requests and writes answers, `turns.py` queues them for one engine, and
`application.py` listens. The package is imported only when a server is started.
"""
