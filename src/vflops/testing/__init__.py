"""Conformance suites: extensions of vflops inherit their tests from here."""
