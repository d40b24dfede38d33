"""Memory as offsets: the protocol that every pool follows."""
