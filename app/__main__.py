"""`python -m app [MODEL]` opens the window."""

import sys
from pathlib import Path

from app.main import main

if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
