"""What Syed, Slivkins and Mishra (2009) say of shifting intent, computed anew and carried on."""
