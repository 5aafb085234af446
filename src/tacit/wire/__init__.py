"""What travels over HTTP: requests and answers, once, for the service and its client."""
