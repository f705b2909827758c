package main

import "slices"

// mutations are one store (pgxstore on PostgreSQL 15), one broker (kafka), and the consumer between them.
var mutations = slices.Concat(storeMutations, consumerMutations, kafkaMutations, relayMutations, publisherMutations, outboxMutations)
