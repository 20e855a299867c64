"""What goes wrong when foreign bytes are decoded.

Not every failure of `msgspec` is its own exception: text that is no UTF-8 raises `UnicodeDecodeError`, and a value that
is nested too deeply `RecursionError`. Whoever reads what others may have written catches all of it.
"""

from __future__ import annotations

from typing import Final

import msgspec

UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
