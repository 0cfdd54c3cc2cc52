"""A local server that speaks OpenAI's protocol: models, chat completions, completions.

`protocol.py` reads requests and writes answers, `turns.py` has one engine answer them one after the
other, `application.py` is what listens. Nothing here is imported unless a server is wanted.
"""
