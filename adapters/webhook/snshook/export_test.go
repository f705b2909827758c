package snshook

// SignFields signs what SNS would not send. Sign makes correct messages only.
func (s *Signer) SignFields(fields map[string]string) ([]byte, error) { return s.sign(fields) }
