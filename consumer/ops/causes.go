package ops

import "github.com/txonce/txonce/observe"

// Causes returns those of observe.Causes for which a consumer parks a message:
//   - observe.CausePermanent, CauseExhausted, CausePanic: its handler failed, or the message cannot be claimed.
//   - observe.CauseUndecodable, CauseNoKey: it cannot be read, or has no usable business key.
//   - observe.CauseMismatch, CauseUnprovable, CauseKnownContent: the store's keys show that it must not run.
//   - observe.CauseCrashed: three processes ended while they tried the message alone. A message is tried alone if it
//     was delivered far more often than consumer.Config.MaxAttempts and this process knows nothing about it. It has a
//     letter with this cause while its handler runs, and the process removes the letter afterwards.
//   - observe.CauseUnknown: a handler ended the transaction that claimed the message, so it is unknown whether the
//     message's effects are committed. The key stays claimed, so that a redelivery does not run, and
//     consumer.DeadLetter.Settled is false although there is a claim. Look at the effects, then Replay it AsNew or
//     Discard it. consumer.Config.ParkLimit does not apply.
func Causes() []observe.Cause {
	return []observe.Cause{
		observe.CausePermanent, observe.CauseExhausted, observe.CausePanic, observe.CauseUndecodable,
		observe.CauseNoKey,
		observe.CauseMismatch, observe.CauseUnprovable, observe.CauseKnownContent, observe.CauseCrashed,
		observe.CauseUnknown,
	}
}
