-- Total of all payments ever, after each block.
-- kind: event
-- key: chain, height
-- stages: silver.test
-- retention: 30 days
CREATE TABLE silver.test_totals (
  total BIGINT NOT NULL COMMENT 'Sum of all payments up to this block',
  notes MAP<STRING, STRING> COMMENT 'A map, which checksums must take'
);
