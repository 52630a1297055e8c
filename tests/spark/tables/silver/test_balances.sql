-- Balances of the test chain. An account whose balance is divisible by 7 is deleted.
-- kind: state
-- key: chain, account
-- stages: silver.test
CREATE TABLE silver.test_balances (
  account STRING NOT NULL COMMENT 'Who',
  balance BIGINT NOT NULL COMMENT 'How much'
);
