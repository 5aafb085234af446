"""Events of others, read from where they are and told to a service as feedback: ``tacit feed``."""
