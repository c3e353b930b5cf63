"""Tools for developers of vflops; nothing here is part of the package."""
