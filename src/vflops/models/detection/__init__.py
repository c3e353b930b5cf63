"""Faster R-CNN of static shapes: every part keeps its sizes, whatever is in the images."""
