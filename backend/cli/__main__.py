"""`python -m backend.cli` is the command `outrider`."""

import sys

from backend.cli import main

sys.exit(main())
