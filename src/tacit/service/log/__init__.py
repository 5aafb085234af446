"""The log: its rows, the stores that keep them, and the requests and ids from which rows are made."""
