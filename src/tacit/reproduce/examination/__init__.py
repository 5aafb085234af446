"""What Qi et al. (2018) say of examination, computed anew and carried on."""
