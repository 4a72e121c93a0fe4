"""What a result depends on: files, headers, and the places where a header would be found instead."""
