"""Values as text and pictures."""
