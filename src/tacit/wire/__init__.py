"""Messages over HTTP: structures of requests and answers, shared by the service and its client."""
