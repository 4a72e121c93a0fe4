"""From a request to a plan: keys, refusals, torch's own plan, and the ways to build it."""
