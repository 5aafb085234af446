"""Target policies: whose value is to be estimated, as probabilities of arms row by row."""
