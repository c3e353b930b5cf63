"""Evidence: the manifest with the hashes of a concluded run's files, and checks against it."""
