"""What Yue and Joachims (2011) say of duels, computed anew and carried on."""
