-- The chains that the lake follows. The latest row of a chain holds.
-- kind: control
-- key: chain, at
-- retention: 30 days
CREATE TABLE control.chains (
  chain STRING NOT NULL COMMENT 'Name, unique in the lake',
  kind STRING NOT NULL COMMENT 'evm, comet, cardano, raft or river',
  source STRING NOT NULL COMMENT 'Path or URL that blocks come from',
  options MAP<STRING, STRING> COMMENT 'Options given to lake ingest',
  at TIMESTAMP NOT NULL COMMENT 'When this row was written'
);
