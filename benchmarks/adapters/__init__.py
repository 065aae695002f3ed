"""One file per system, the same shape each: see `peer.py`."""
