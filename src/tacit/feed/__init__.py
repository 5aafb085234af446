"""Events of others, read from where they are and sent to a service as feedback: ``tacit feed``."""
