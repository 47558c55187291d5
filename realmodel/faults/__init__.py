"""Planted faults of a binding: caches, positions, masks, adapters, timing. What a certificate must find, to mean anything.

binding    sessions of which one step is replaced        harness    measuring harnesses, and the audit of them
table      the rows                                      matrix     running them
"""
