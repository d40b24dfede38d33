"""From lifespans to offsets."""
