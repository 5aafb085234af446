"""Read events of other systems and send them to a service as feedback (``tacit feed``)."""
