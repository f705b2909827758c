package applehook

// For fuzz tests.
var (
	ParseObject       = parseObject
	CheckOCSPResponse = checkOCSPResponse
)

// ParseJWS returns what a JWS says is signed.
func ParseJWS(compact string) (signed string, payload []byte, err error) {
	j, err := parseJWS(compact)
	if err != nil {
		return "", nil, err
	}
	return j.signed, j.payload, nil
}
