-- Tokens that transactions of Cardano chains mint and burn.
-- kind: event
-- key: chain, height, tx_index, policy, asset_name
-- stages: bronze.cage
-- retention: 30 days
CREATE TABLE bronze.cardano_mints (
  tx_index INT NOT NULL COMMENT 'Position of the transaction in the block',
  tx_id BINARY NOT NULL COMMENT 'Id of the transaction',
  is_valid BOOLEAN NOT NULL COMMENT 'The transaction took effect',
  policy BINARY NOT NULL COMMENT 'Policy id, 28 bytes',
  asset_name BINARY NOT NULL COMMENT 'Name under the policy',
  quantity BIGINT NOT NULL COMMENT 'How many; negative if burnt'
)
CLUSTER BY (_chain, _height);
