#!/bin/sh
# Finds a Python that is new enough, and runs prepare.py with it.
cd "$(dirname "$0")/.." || exit 1
for python in "$PYTHON" .venv/bin/python python3 python3.14 python3.13 python3.12 python3.11; do
    if [ -n "$python" ] &&
        "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        exec "$python" packaging/prepare.py "$@"
    fi
done
echo "Outrider needs Python 3.11 or newer, and none was found. PYTHON=... chooses one." >&2
exit 1
