"""Evidence: the manifest that pins the files of a concluded run, and checks against it."""
