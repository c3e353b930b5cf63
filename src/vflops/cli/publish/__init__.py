"""Commands that hand results on."""
