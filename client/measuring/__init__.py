"""What an import and a call cost, measured in processes that end afterwards, and pictures of it."""
