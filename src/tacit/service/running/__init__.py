"""The process: how it is started, what it says while it runs, how it stops."""
