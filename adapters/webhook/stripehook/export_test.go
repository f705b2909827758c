package stripehook

// LimitAnswers makes the Client of b refuse answers of more than n bytes.
func LimitAnswers[TTx any](b *Backfill[TTx], n int64) { b.cfg.Client.most = n }
