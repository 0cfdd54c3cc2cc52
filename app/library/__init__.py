"""The page with all models: what is there, whether it will run here, and how fast."""
