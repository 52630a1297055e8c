"""Metadata shards: streams on CometBFT chains, their rules, and a state root that anyone can check."""
