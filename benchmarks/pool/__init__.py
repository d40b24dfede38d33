"""How fast the pool serves, by the number of blocks it holds."""
