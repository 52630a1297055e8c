"""Replicas of a database: one Meta log, 33 data shards, and a watermark that keeps data behind the Meta it needs."""
