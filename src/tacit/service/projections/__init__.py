"""What watches a placement: open decisions and their rewards, and sums for reports, as folds of the log."""
