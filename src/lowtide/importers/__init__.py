"""From the outside world to a Graph or a Trace."""
