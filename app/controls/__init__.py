"""What the user sets of the engine: one switch, the cache rate, and the strip with the rest."""
