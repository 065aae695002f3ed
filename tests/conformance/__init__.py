"""The conformance suite of the store contract, run completely on each entry of `stores.STORES`."""
