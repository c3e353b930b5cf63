"""Ensembles: the bag of each base model, its predictions, and their combination."""
