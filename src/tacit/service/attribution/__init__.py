"""Which feedback earns a decision what reward, and when."""
