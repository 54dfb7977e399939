"""A run steered from outside: the HTTP API, who may use it, and what finds it."""
