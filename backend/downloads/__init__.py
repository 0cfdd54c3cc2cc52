"""Models from Hugging Face, or from any other address.

`address` reads what the user typed, `hub` lists what is there, `headers` says what a model is
before it is fetched, `transfer` fetches one file, `job` a model and `manager` all that the user
asked for. Nothing here contacts anybody unless it is called for that, and nothing is sent but the
requests themselves.
"""
