"""Changes of files that are read from outside."""

from __future__ import annotations


def change_bytes(data: bytearray, what: str, at: int, value: int) -> None:
    """Another byte, another number of 4 or 8 bytes, the end cut off, or bytes removed."""
    match what:
        case "byte":
            data[at : at + 1] = bytes([value])
        case "number":
            data[at : at + 4] = value.to_bytes(4, "little")
        case "large":
            data[at : at + 8] = value.to_bytes(8, "little")
        case "cut":
            del data[at:]
        case "remove":
            del data[at : at + value]
