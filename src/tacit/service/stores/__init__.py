"""Where the log and the snapshots are kept."""
