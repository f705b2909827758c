// Package deliver hands the messages that a broker delivered to a consumer.Processor. All receiving adapters use it.
//
// An adapter makes one Deliverer per Run (Kafka: one per partition), adds deliveries as they arrive, and gets each of
// them back, exactly once, in Config.Settle:
//
//	dr := deliver.New(ctx, deliver.Config{Processor: p, Concurrency: 4, Settle: s.settle, …})
//	for dr.Context().Err() == nil {
//		n := dr.Reserve(10)           // waits for room; not needed where the broker has a prefetch limit
//		msgs, err := receive(dr.Context(), n)
//		dr.Add(deliveries(msgs)...)
//		dr.Release(n)
//	}
//	return dr.Drain(grace, deliver.HandlerExit)
//
// # How it works
//
// A delivery is waiting, in work, or settled:
//
//	Add → waiting → in work → settled
//	         ↑         |
//	         +- Keep --+
//
// Up to Config.Concurrency batches are in work at a time. A batch is formed of waiting deliveries; it never waits to be
// filled. Deliveries without a Key are free. Deliveries with one Key are handled in the order of Add: two of them are
// never in work at the same time, except in one batch. When one of them fails, those behind it are not handled before
// it: they wait while the failed one waits here (Config.Keep), and they are given back when it is given back.
//
// Each batch in work has a goroutine, and there are no others. Drain waits for them.
//
// A crash loses the deliveries in memory. The broker still has them, because only Settle acknowledges.
package deliver
