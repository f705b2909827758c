// Command outbox compares txonce's outbox with watermill-sql's forwarder and River: the same messages, PostgreSQL, Kafka and
// producer settings, one after another in one run, so that the ratios hold on any machine.
//
//	make bench-outbox
//	go run ./outbox -rounds 3 -json
//
// It answers three questions. How fast is a backlog published to Kafka, with normal acknowledgements and with acknowledgements
// that take 2 ms longer? How long after COMMIT has the broker confirmed the message? How much does the message slow down its
// transaction? The last two are also measured for the least that is possible on the machine without any guarantee; no target
// beyond that can be met there. Each figure is the median over rounds. With -gate the command fails if a target is missed by more
// than 15 %.
package main
