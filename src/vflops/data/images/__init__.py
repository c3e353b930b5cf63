"""Labelled images: folders of image files, their check, packed and synthetic images."""
