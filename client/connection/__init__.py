"""The way to the daemon: the socket, the session, one request until it is answered."""
