"""Climate fields with labelled extreme weather: HDF5 years, packed frames, synthetic weather."""
