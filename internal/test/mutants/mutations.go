package main

import "slices"

// mutations cover one store (pgxstore on PostgreSQL 15), one broker (kafka), the consumer between them, and the code that is
// different for other stores and brokers.
var mutations = slices.Concat(storeMutations, pgxstoreMutations, sessionMutations, sqlstoreMutations, consumerMutations, kafkaMutations, relayMutations, publisherMutations, outboxMutations, brokerMutations, webhookMutations, stdMutations, stripeMutations, applehookMutations, hookMutations, httpMutations, operationsMutations, telemetryMutations, cliMutations, dashboardMutations)
