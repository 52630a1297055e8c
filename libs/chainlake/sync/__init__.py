"""Stream sync: miniblocks of many streams, fetched, verified and delivered so that no event is lost and none comes twice."""
