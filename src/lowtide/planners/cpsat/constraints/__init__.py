"""One constraint per file."""
