"""What a result depends on: files, headers, and paths where a header would be found first."""
