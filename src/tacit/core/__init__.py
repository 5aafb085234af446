"""What everything else stands on: dispatch, compilation, checks."""
