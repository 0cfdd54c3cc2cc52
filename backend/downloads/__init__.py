"""Downloads models from Hugging Face or from any other address.

`address` parses the user's text, `hub` lists the models there, and `headers` reads a model's header
before the download. `transfer` fetches a file, `job` a model, and `manager` runs all downloads.
Importing a module contacts no server. Requests carry nothing beyond what they need.
"""
