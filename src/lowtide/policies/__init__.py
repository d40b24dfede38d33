"""Which blocks to evict: the protocol that every policy follows, and one small file for each policy."""
