"""Events of others as feedback, by a map: what a feed and a webhook of the service share."""
