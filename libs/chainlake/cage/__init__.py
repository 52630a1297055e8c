"""The Cardano indexer: the UTxO set, the cage's tokens and requests, and a trie per token."""
