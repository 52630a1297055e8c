-- What exists. One row per commit and chain of a stage; a data row is visible if its commit is here and its height is
-- at most the commit's limit. Written only by compare-and-swap, never updated.
-- kind: control
-- key: stage, lane, seq, chain
-- retention: 30 days
CREATE TABLE control.ledger (
  stage STRING NOT NULL COMMENT 'Stage that committed, e.g. silver.cage',
  lane STRING NOT NULL COMMENT 'Chains that advance together; by default the chain itself',
  chain STRING NOT NULL COMMENT 'Chain, shard, replica or stream service',
  seq BIGINT NOT NULL COMMENT 'Number of the commit in its lane, from 1, without gaps',
  commit_id BIGINT NOT NULL COMMENT 'Id of the attempt that wrote the rows; ordered by time',
  kind STRING NOT NULL COMMENT 'advance, rollback or compact',
  base_height BIGINT NOT NULL COMMENT 'Head before this commit',
  height BIGINT NOT NULL COMMENT 'Head after this commit; of a compact row: the height its base holds',
  block_hash BINARY COMMENT 'Hash of the block at height',
  roots MAP<STRING, BINARY> COMMENT 'State roots after height, by name',
  inputs MAP<STRING, BIGINT> COMMENT 'Input stage to the seq of it that was consumed',
  delta_versions MAP<STRING, BIGINT> COMMENT 'Physical table to its Delta version after this commit',
  rows MAP<STRING, BIGINT> COMMENT 'Physical table to the rows this commit wrote, all chains of the lane together',
  checksums MAP<STRING, BIGINT> COMMENT 'Physical table to the order-free checksum of those rows',
  epoch BIGINT NOT NULL COMMENT 'Lease epoch of the writer',
  run_id STRING COMMENT 'Run that wrote it, see control.runs',
  why STRING COMMENT 'Reason of a rollback or compaction, and who asked for it',
  committed_at TIMESTAMP NOT NULL COMMENT 'When it was committed'
);
