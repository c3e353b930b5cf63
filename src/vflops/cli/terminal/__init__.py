"""What commands show in a terminal: tables, progress, errors and next steps."""
