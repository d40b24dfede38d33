"""From a verified plan to the outside world."""
