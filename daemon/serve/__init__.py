"""The daemon's interface: sockets, requests, prewarming, status, logs, metrics."""
