"""The program that checks a node and its links, for preflights and for ceilings."""
