"""Conformance suites, from which extensions of vflops inherit their tests."""
