"""One file per system, each with a `Peer`: see `peer.py`."""
