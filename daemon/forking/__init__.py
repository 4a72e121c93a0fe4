"""Processes that load something heavy once, and fork a child for each job."""
