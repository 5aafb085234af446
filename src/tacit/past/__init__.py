"""From past events to a start: a click log, what it says, a configuration and a report."""
