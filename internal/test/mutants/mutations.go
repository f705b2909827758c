package main

import "slices"

// mutations cover one store (pgxstore on PostgreSQL 15), one broker (kafka), the consumer between them, and the code in which other
// stores and brokers differ.
var mutations = slices.Concat(storeMutations, consumerMutations, kafkaMutations, relayMutations, publisherMutations, outboxMutations, brokerMutations)
