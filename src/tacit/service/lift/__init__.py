"""What learning earned more than a control: the coin, the sums, and what is said of them."""
