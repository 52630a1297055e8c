-- Which chunks a stream has in a shard of a segment; a chunk that is not listed here does not exist for readers. Merged from many small segments, which it replaces for readers.
-- kind: index
-- key: chain, stream, shard
-- stages: gold.log_merges
-- retention: 30 days
CREATE TABLE gold.log_manifests_merged (
  stream BIGINT NOT NULL COMMENT 'kind << 60 | low 60 bits of xxhash64(value); kinds: 1 address, 2 to 5 topic0 to topic3 (entries are log ids), 6 topic0 by block, 7 block hash (entries are block numbers)',
  shard BIGINT NOT NULL COMMENT 'Upper bits of the entries: id >> 24',
  count INT NOT NULL COMMENT 'Entries in all chunks',
  refs ARRAY<STRUCT<chunk_seq: BIGINT, min_local: INT, max_local: INT, count: INT>> NOT NULL COMMENT 'The chunks, ascending'
);
