"""Training data: checked, packed so that reading never stalls training, and staged to nodes."""
