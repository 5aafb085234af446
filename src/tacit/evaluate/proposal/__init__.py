"""Parameters for policies that follow shifting intent, proposed from a click log."""
