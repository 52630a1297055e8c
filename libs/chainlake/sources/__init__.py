"""How blocks come in: one module per kind of chain, pure Python, and one Spark data source over all of them."""
