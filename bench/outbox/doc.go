// Command outbox measures txonce's outbox beside watermill-sql's forwarder and River: the same messages, the same
// PostgreSQL, the same Kafka and the same producer settings, one after the other in one run, so that the ratios hold on
// any machine.
//
//	make bench-outbox
//	go run ./outbox -rounds 3 -json
//
// Three questions are asked: how fast is a backlog drained to Kafka, with acknowledgements as fast as they come and with
// ones that take 2 ms more; how long after COMMIT has the broker confirmed; what does the message cost the transaction that
// writes it. The last two are also measured of the least that can be done on the machine, without any guarantee: a target
// beyond that figure cannot be met there. Each figure is the median over rounds. With -gate the command fails when a target of docs/design is
// missed by more than 15 %.
package main
