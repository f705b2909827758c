package httpidem

import "net/http"

// Stored is what is stored for a response to the request with this content.
func Stored(secret, content []byte, status int, header http.Header, body []byte) ([]byte, error) {
	return encode(fingerprintUnder(secret, content), &response{status: status, header: header, body: body}, nil)
}

// Read reads a stored result as a replay does.
func Read(secret, content, result []byte) (same bool, status int, header http.Header, body []byte, err error) {
	if same, err = matches(result, fingerprintUnder(secret, content)); err != nil {
		return false, 0, nil, nil, err
	}
	res, err := decode(result, nil)
	if err != nil {
		return same, 0, nil, nil, err
	}
	return same, res.status, res.header, res.body, nil
}
