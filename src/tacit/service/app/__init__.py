"""The web application and its server: routes, guard, logging, traces."""
