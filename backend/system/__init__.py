"""What differs by system: memory facts, processor facts, and where files lie."""
