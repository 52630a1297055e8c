"""Merkle trees that outside verifiers accept: pure Python, no Spark.

Each tree has the same face: `root(items)`, `prove(items, key)`, `verify(root, key, value or None, proof)` and a `Proof` with
`to_json()` and `to_bytes()`, beside an incremental form that works on stored rows.
"""
