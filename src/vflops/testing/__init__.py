"""Conformance suites: what extends vflops inherits its tests from here."""
