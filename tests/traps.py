"""Bytes that would end the process if they were unpickled, as a checkpoint or by themselves."""

from __future__ import annotations

import pickle
import struct
import sys
from typing import Any

import google_crc32c


class _Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return sys.exit, ("code from a folder was run",)


PICKLE = pickle.dumps(_Trap())
_body = struct.pack("<QQ", len(PICKLE), 0) + PICKLE
PICKLED_ENTRY = google_crc32c.value(_body).to_bytes(4, "little") + _body
"""A checkpoint as the first format had it, whose checksum is right."""
