"""`python -m app [MODEL]` opens the window."""

import sys

from app.main import main

if __name__ == "__main__":
    sys.exit(main())
