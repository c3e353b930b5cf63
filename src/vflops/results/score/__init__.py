"""The score of a run, which depends only on its folder: any machine computes the same bytes."""
