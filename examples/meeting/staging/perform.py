"""`python -m examples.meeting.staging.perform MODULE ARG…`: run its `main`, and write what it logs as JSON lines, as
`tutti run --log json` does for subscribers."""

from __future__ import annotations

import importlib
import sys

from tutti.cli.logs import start_logging

if __name__ == "__main__":
    start_logging("json", "info")
    sys.argv = sys.argv[1:]
    sys.exit(importlib.import_module(sys.argv[0]).main())
