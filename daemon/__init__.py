"""Everything that runs in the service. Imports warmcc's shared vocabulary, never warmcc.client."""
