"""What the page shows of each kind of placement, beside what it shows of all."""
