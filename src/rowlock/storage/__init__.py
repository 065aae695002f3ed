"""Where jobs rest: the contract (`base`) and the stores that keep it."""
