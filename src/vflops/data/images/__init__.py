"""Images by class: a folder of files, its check, and the packed form that training reads."""
