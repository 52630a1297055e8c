-- Payments of the test chain, three per block.
-- kind: event
-- key: chain, height, tx_index
-- stages: bronze.test
-- retention: 30 days
CREATE TABLE bronze.test_payments (
  tx_index INT NOT NULL COMMENT 'Position in the block',
  account STRING NOT NULL COMMENT 'Who is paid',
  amount BIGINT NOT NULL COMMENT 'How much'
);
