"""What every store promises: one suite, run whole on each entry of `stores.STORES`."""
