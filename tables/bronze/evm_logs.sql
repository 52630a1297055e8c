-- Logs of finalized blocks with a global number: log_id counts all logs of the chain from 0, in block and log order.
-- kind: event
-- key: chain, log_id
-- stages: bronze.logs
-- retention: 30 days
CREATE TABLE bronze.evm_logs (
  log_id BIGINT NOT NULL COMMENT 'Number of the log among all logs of the chain; shard = log_id >> 24, local = log_id & 0xffffff',
  block_number BIGINT NOT NULL COMMENT 'Block',
  block_hash BINARY NOT NULL COMMENT 'Hash of the block',
  block_timestamp TIMESTAMP COMMENT 'Time of the block',
  transaction_hash BINARY NOT NULL COMMENT 'Transaction that emitted the log',
  transaction_index INT NOT NULL COMMENT 'Position of the transaction in the block',
  log_index INT NOT NULL COMMENT 'Position of the log in the block',
  address BINARY NOT NULL COMMENT 'Contract that emitted the log, 20 bytes',
  topic0 BINARY COMMENT 'First topic, usually the hash of the event signature; NULL if the log has none',
  topic1 BINARY COMMENT 'Second topic; NULL if the log has fewer',
  topic2 BINARY COMMENT 'Third topic; NULL if the log has fewer',
  topic3 BINARY COMMENT 'Fourth topic; NULL if the log has fewer',
  topic_count INT NOT NULL COMMENT 'Number of topics, 0 to 4',
  data BINARY NOT NULL COMMENT 'What is not indexed, ABI-encoded'
)
CLUSTER BY (_chain, _height)
TBLPROPERTIES ('delta.dataSkippingStatsColumns' = '_chain,_height,_commit,log_id,block_number,block_timestamp');
