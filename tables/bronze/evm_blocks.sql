-- Finalized blocks: header fields, how many logs each has and where they start in the global numbering.
-- kind: event
-- key: chain, height
-- stages: bronze.logs
-- retention: 30 days
CREATE TABLE bronze.evm_blocks (
  block_number BIGINT NOT NULL COMMENT 'Block',
  hash BINARY NOT NULL COMMENT 'Hash of the block',
  parent_hash BINARY NOT NULL COMMENT 'Hash of the block before it',
  timestamp TIMESTAMP COMMENT 'Time of the block',
  miner BINARY COMMENT 'Address that receives the fees',
  gas_used BIGINT COMMENT 'Gas used by all transactions',
  base_fee_per_gas DECIMAL(38, 0) COMMENT 'Base fee, in wei',
  transaction_count INT NOT NULL COMMENT 'Transactions that it lists; where its source leaves the list out, those up to the last with logs',
  first_log_id BIGINT NOT NULL COMMENT 'log_id of its first log; of the next log to come if it has none',
  log_count INT NOT NULL COMMENT 'Logs in the block',
  bloom_checked BOOLEAN NOT NULL COMMENT 'The header has a logsBloom, and it was recomputed and is equal'
)
CLUSTER BY (_chain, _height);
