package main

import "slices"

// mutations are one store (pgxstore on PostgreSQL 15), one broker (kafka), the consumer between them, and what the other stores
// and brokers do in their own way.
var mutations = slices.Concat(storeMutations, consumerMutations, kafkaMutations, relayMutations, publisherMutations, outboxMutations, brokerMutations)
