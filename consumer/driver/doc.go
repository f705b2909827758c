// Package driver is for authors of Subscribers and of stores. Users of txonce need it only for the hooks of a
// Subscriber, [SourceTrace].
//
// A Subscriber receives messages from a broker and hands them to a consumer.Processor. It looks for the optional
// interfaces of the Processor, such as [BatchProcessor] and [Starter], and calls the hooks of a SourceTrace. Package
// consumer/consumertest has the suite that a Subscriber must pass.
//
// A store is a dedup.Store that also implements [ParkingLot], so that it keeps dead letters, and [ReplayQueue], so that
// it keeps operators' requests to replay them. Package dedup/driver has what it may implement beside these. Packages
// dedup/deduptest and consumer/ops/opstest have the suites.
package driver
