"""Which blocks to evict: the protocol that every policy follows."""
