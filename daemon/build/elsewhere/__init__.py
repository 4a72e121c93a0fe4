"""Objects of the same sources in another folder, with their names of files replaced."""
