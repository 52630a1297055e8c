-- One row per batch: rows that span blocks.
-- kind: index
-- key: chain, height
-- stages: gold.test
-- retention: 30 days
CREATE TABLE gold.test_chunks (
  first_height BIGINT NOT NULL COMMENT 'First block of the chunk',
  amount BIGINT NOT NULL COMMENT 'Sum of the payments in it'
);
