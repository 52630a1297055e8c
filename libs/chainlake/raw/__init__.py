"""The raw layer: blocks and transactions of every kind of chain, exactly as received, linked and without gaps."""
