"""The engine panel: what the engine does, live, and over the last answer again."""
