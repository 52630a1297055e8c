"""Chainlake: a lakehouse for block-ordered data. Block-atomic, reversible, provable Delta tables."""

__version__ = "0.1.0"
