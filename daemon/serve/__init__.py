"""The daemon to the outside: sockets, requests and their order, prewarming, status, logs, metrics."""
