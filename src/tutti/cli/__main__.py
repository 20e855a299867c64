"""`python -m tutti.cli`, the same as `tutti`."""

from __future__ import annotations

from tutti.cli import main

main()
