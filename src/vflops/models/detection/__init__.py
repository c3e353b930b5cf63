"""Faster R-CNN with static shapes: no size depends on the content of the images."""
