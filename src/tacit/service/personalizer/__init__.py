"""The Personalizer API over a placement: what such an application sends, and what it expects."""
