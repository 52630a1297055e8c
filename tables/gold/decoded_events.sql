-- What logs say, decoded by the declarations in control.events; a log that no declaration fits is here with the reason.
-- kind: event
-- key: chain, log_id
-- stages: gold.decoded
-- retention: 30 days
CREATE TABLE gold.decoded_events (
  log_id BIGINT NOT NULL COMMENT 'Number of the log in bronze.evm_logs',
  block_number BIGINT NOT NULL COMMENT 'Block',
  block_timestamp TIMESTAMP COMMENT 'Time of the block',
  transaction_hash BINARY NOT NULL COMMENT 'Transaction that emitted the log',
  log_index INT NOT NULL COMMENT 'Position of the log in the block',
  address BINARY NOT NULL COMMENT 'Contract that emitted the log',
  event STRING COMMENT 'Name of the event; NULL if the log could not be decoded',
  signature STRING COMMENT 'Declaration that it was decoded by',
  args MAP<STRING, STRING> COMMENT 'Parameters as text: addresses and bytes in hex, numbers in decimal, arrays as JSON',
  from_address BINARY COMMENT 'Parameter from of transfer-like events',
  to_address BINARY COMMENT 'Parameter to of transfer-like events',
  value DECIMAL(38, 0) COMMENT 'Amount of transfer-like events; NULL if larger than fits (args has it)',
  reason STRING COMMENT 'Why the log could not be decoded; NULL if it was'
)
CLUSTER BY (_chain, _height);
