"""What operators do to a log as a whole: check, deal out anew."""
