// Package sim runs programs of several processes under a scheduler that a seed decides. It knows nothing of messages.
//
// A test wraps what its processes use: databases, brokers. Each wrapper calls [Process.At] where a process and the rest
// of the world meet, at a boundary. There the goroutine parks. The scheduler waits until all goroutines of the bubble
// (testing/synctest) are parked or asleep, wakes one of them, and says what happens there: nothing, or one of the
// faults that the world's menu has for the boundary. Or it lets time pass. So a seed and a number are a run, which can be
// repeated exactly, and a run that fails can be made shorter: see [Shrink].
//
// Goroutines must not park while they hold a mutex: synctest.Wait would wait for ever for those that want it. Timers
// that end together run in any order, so [Process.Unlike] makes each wait different by some nanoseconds.
package sim
