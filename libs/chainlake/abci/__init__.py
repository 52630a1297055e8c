"""ABCI: how CometBFT talks to the application that it replicates. The wire in `frames` and `messages`, the shard behind it in
`application`, sockets in `server`."""
