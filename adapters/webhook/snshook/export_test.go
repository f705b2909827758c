package snshook

// SignFields signs what SNS would not send. Sign makes correct messages only.
func (s *Signer) SignFields(fields map[string]string) ([]byte, error) { return s.sign(fields) }

// Read returns the fields and the signed text of body, without a look at its signature: RSA is slow under a fuzzer.
func (v *Verifier) Read(body []byte) (fields map[string]string, text []byte, err error) {
	m, err := v.readMessage(body)
	return m.fields, signedText(m.kind, m.fields), err
}
