"""Climate fields with the extreme weather in them: HDF5 years, packed frames, synthetic ones."""
