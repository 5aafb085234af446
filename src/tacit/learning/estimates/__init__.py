"""What a learner believes, for people to look at."""
