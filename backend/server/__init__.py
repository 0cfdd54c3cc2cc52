"""A local server that speaks the protocols of OpenAI, Anthropic and Ollama (docs/server.md).

`ask.py` has their common form. `openai_chat.py`, `openai_text.py`, `openai_responses.py` and
`anthropic_messages.py` each read requests and write answers. `turns.py` queues requests for one
engine, `engine_host.py` owns an engine, `guard.py` decides who may connect, and `application.py`
has the endpoints. The package is imported only when a server is started.
"""
