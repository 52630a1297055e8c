-- Event declarations by which logs are decoded. The latest row of a declaration and contract holds.
-- kind: control
-- key: declaration, contract, at
-- retention: 30 days
CREATE TABLE control.events (
  event STRING NOT NULL COMMENT 'Name of the event',
  declaration STRING NOT NULL COMMENT 'As in Solidity: Transfer(address indexed from, address indexed to, uint256 value)',
  topic0 BINARY NOT NULL COMMENT 'Hash of the signature: the first topic of its logs',
  contract BINARY COMMENT 'Contract that it is limited to; NULL for any',
  state STRING NOT NULL COMMENT 'added or removed',
  position INT NOT NULL COMMENT 'Of several that fit a log the one with the lowest position is taken',
  actor STRING NOT NULL COMMENT 'Who wrote this row',
  at TIMESTAMP NOT NULL COMMENT 'When this row was written'
);
