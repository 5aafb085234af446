"""The HTTP interface of the service: routes, handlers, connections and metrics."""
