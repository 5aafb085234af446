"""The bandit that weighs warnings: what it learns, what it weighs, how it chooses."""
